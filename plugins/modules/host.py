#!/usr/bin/python
# Copyright: servewright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host side of servewright.llm.service: arguments in, one call into the host library, a result out."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host
short_description: Run one operation of the servewright host library
description:
  - Called by the action plugin M(servewright.llm.service), which validates and renders first. Not meant for playbooks.
version_added: 0.1.0
author:
  - servewright contributors (@servewright)
options:
  operation:
    description: What to do.
    type: str
    required: true
    choices:
      - deploy
      - preflight
      - rollback
      - follow
      - verify
      - watch
      - status
      - history
      - logs
      - proof
      - drift
      - bench
      - records
      - measure
  services:
    description: Names of services. Empty means all that are known on the host.
    type: list
    elements: str
    default: []
  releases:
    description: Rendered releases, for O(operation=deploy) and O(operation=preflight).
    type: list
    elements: dict
    default: []
  secrets:
    description: Values of secrets by service and name.
    type: dict
    default: {}
  host:
    description: What the host itself declares, for O(operation=deploy).
    type: dict
  plan:
    description:
      - For O(operation=deploy), what a plan says of each service. Nothing that differs from it is touched.
    type: dict
  to_release:
    description: Number of the release to go back to.
    type: int
  transaction:
    description: Number of the transaction to follow. Without it the latest.
    type: int
  wait:
    description: Seconds to wait for a transaction to end.
    type: float
    default: 0
  lock_wait:
    description: Seconds to wait for another run to let go of a service.
    type: float
    default: 0
  request:
    description: With O(operation=measure), what to measure.
    type: dict
    default: {}
  program:
    description: With O(operation=measure), the program that measures, a zipapp in base64.
    type: str
    default: ""
  stop:
    description: With O(operation=measure), stop the services that hold the GPUs and start them again afterwards.
    type: bool
    default: false
  lines:
    description: Number of log lines.
    type: int
    default: 50
  repair:
    description: With O(operation=drift), mend what needs no restart.
    type: bool
    default: false
  allow_restart:
    description: With O(repair=true), mend by restarts too, also outside of maintenance windows.
    type: bool
    default: false
  concurrency:
    description: Numbers of streams at once, for O(operation=bench). Empty means some powers of two.
    type: list
    elements: int
    default: []
  seconds:
    description: Seconds that O(operation=bench) may measure, about.
    type: float
    default: 120
  requester:
    description: Who asks, for the history.
    type: str
    default: ""
  reason:
    description: Why, for the history.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: State of every service
  servewright.llm.host:
    operation: status
"""

RETURN = r"""
services:
  description: One result a service.
  type: list
  elements: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host import api, paths


def call(arguments, check):
    """One call into the host library; gives the list of results."""
    operation = arguments["operation"]
    origin = {
        "requester": arguments["requester"],
        "reason": arguments["reason"],
        "lock_wait": arguments["lock_wait"],
    }
    if operation == "deploy":
        about = {"host": arguments["host"], "plan": arguments["plan"]}
        return api.deploy(arguments["releases"], arguments["secrets"], check, **about, **origin)
    if operation == "preflight":
        return api.preflight(arguments["releases"])
    if operation == "measure":
        request, program, stop = arguments["request"], arguments["program"], arguments["stop"]
        return [
            api.measure(release["service"], release, request, program, stop, **origin)
            for release in arguments["releases"]
        ]
    names = arguments["services"] or paths.services()
    if operation == "rollback":
        return [api.rollback(name, arguments["to_release"], **origin) for name in names]
    if operation == "follow":
        return [api.follow(name, arguments["transaction"], arguments["wait"]) for name in names]
    if operation == "logs":
        return [api.logs(name, arguments["lines"]) for name in names]
    if operation == "drift":
        repair = arguments["repair"] and not check
        return api.drift(names, repair, arguments["allow_restart"], **origin)
    if operation == "bench":
        return [api.bench(name, arguments["concurrency"], arguments["seconds"]) for name in names]
    return [getattr(api, operation)(name) for name in names]


def main():
    module = AnsibleModule(
        argument_spec={
            "operation": {
                "type": "str",
                "required": True,
                "choices": [
                    "deploy",
                    "preflight",
                    "rollback",
                    "follow",
                    "verify",
                    "watch",
                    "status",
                    "history",
                    "logs",
                    "proof",
                    "drift",
                    "bench",
                    "records",
                    "measure",
                ],
            },
            "services": {"type": "list", "elements": "str", "default": []},
            "releases": {"type": "list", "elements": "dict", "default": []},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "host": {"type": "dict"},
            "plan": {"type": "dict"},
            "to_release": {"type": "int"},
            "transaction": {"type": "int"},
            "wait": {"type": "float", "default": 0},
            "lock_wait": {"type": "float", "default": 0},
            "request": {"type": "dict", "default": {}},
            "program": {"type": "str", "default": ""},
            "stop": {"type": "bool", "default": False},
            "lines": {"type": "int", "default": 50},
            "repair": {"type": "bool", "default": False},
            "allow_restart": {"type": "bool", "default": False},
            "concurrency": {"type": "list", "elements": "int", "default": []},
            "seconds": {"type": "float", "default": 120},
            "requester": {"type": "str", "default": ""},
            "reason": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    services = call(module.params, module.check_mode)
    module.exit_json(
        changed=any(item["verdict"] in ("changes", "running", "pending", "mended") for item in services),
        services=services,
    )


if __name__ == "__main__":
    main()
