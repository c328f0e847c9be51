#!/usr/bin/python
# Copyright: servewright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation of the action plugin of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service
short_description: Deploy, verify and roll back LLM engines as systemd services
description:
  - Validates the services that the inventory declares in C(servewright_services), renders them on the controller, and
    has the host bring itself to them, with one call when there is nothing to change.
  - The cutover runs on the host as a transaction that goes back to the last committed release when a gate fails,
    whatever happens to the controller.
  - Needs the Python package C(servewright) on the controller.
version_added: 0.1.0
author:
  - servewright contributors (@servewright)
attributes:
  check_mode:
    description: With O(command=deploy) the plan is computed and nothing is touched.
    support: full
options:
  command:
    description: What to do.
    type: str
    required: true
    choices:
      - validate
      - render
      - preflight
      - plan
      - deploy
      - verify
      - watch
      - status
      - history
      - rollback
      - logs
      - follow
      - proof
      - drift
      - bench
      - records
      - nccl_bench
      - nccl_tune
  only:
    description: Names of services. Empty means all.
    type: list
    elements: str
    default: []
  plan:
    description:
      - With O(command=deploy), a file of the controller that C(servewright plan --out) wrote. Each host gets what it
        says, and refuses it when the host or the declaration has changed since.
    type: path
  to_release:
    description: With O(command=rollback), the number of the release; without it the one committed before.
    type: int
  reason:
    description: Why, for the history.
    type: str
    default: ""
  requester:
    description: Who asks, for the history. Empty means user and host name of the controller.
    type: str
    default: ""
  lock_wait:
    description: Seconds to wait for another run to let go of a service.
    type: float
    default: 0
  lines:
    description: With O(command=logs), the number of lines.
    type: int
    default: 50
  repair:
    description: With O(command=drift), mend what needs no restart, and the rest in a declared maintenance window.
    type: bool
    default: false
  allow_restart:
    description: With O(repair=true), mend by restarts too, at any time, through the transaction and its gates.
    type: bool
    default: false
  fail_on_drift:
    description: With O(command=drift), count a host on which drift is left as failed.
    type: bool
    default: false
  concurrency:
    description: With O(command=bench), the numbers of streams at once. Empty means 1 to 32 in powers of two.
    type: list
    elements: int
    default: []
  seconds:
    description: With O(command=bench), the time to measure, about. Levels that would begin later are left out.
    type: float
    default: 120
  measure:
    description:
      - With O(command=nccl_bench) and O(command=nccl_tune), what to measure and how long - C(profiles), C(seconds),
        C(decode), C(prefill), C(weight_decode), C(weight_prefill), C(channels), C(ablate), C(stop), C(rehearsal).
    type: dict
    default: {}
  detach:
    description: Start the transaction and do not wait for its verdict.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Bring the services of a host to what is declared
  servewright.llm.service:
    command: deploy
    reason: new model

- name: Compare what runs with what was committed, and mend what needs no restart
  servewright.llm.service:
    command: drift
    repair: true

- name: Go back to the release before
  servewright.llm.service:
    command: rollback
    only: [kimi]
"""

RETURN = r"""
servewright:
  description: Problems of the declaration, and one result a service.
  type: dict
  returned: always
"""
