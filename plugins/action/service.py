# Copyright: servewright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Validates and renders on the controller, has the host act, and follows its transactions to their verdicts."""

from __future__ import annotations

import base64
import getpass
import json
import os
import socket
import time
from pathlib import Path

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..modules.service import DOCUMENTATION

try:
    from servewright.nccl.measure import ship
    from servewright.release import measure
    from servewright.release.planned import planned
    from servewright.release.service import declared, host_settings
    from servewright.release.sources import annotate
    from servewright.spec.problems import InvalidError
    from servewright.spec.validate import SERVICES_VARIABLE

    MISSING = None
except ImportError as error:
    MISSING = error

display = Display()

# The documentation is the one place that states the arguments and their defaults.
ARGUMENTS = {
    name: {key: value for key, value in option.items() if key != "description"}
    for name, option in yaml.safe_load(DOCUMENTATION)["options"].items()
}
DECLARED = ("validate", "render", "preflight", "plan", "deploy")
"""Commands that work on what is declared; the others, on what a host has."""
CHANGED = ("changes", "committed", "rolled_back", "running", "mended")
BAD = ("refused", "rolled_back", "rollback_failed", "busy", "error", "failed")
FOLLOW_SECONDS = 5.0
HEARTBEAT_SECONDS = 10.0


class ActionModule(ActionBase):
    """Action of servewright.llm.service."""

    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        if MISSING is not None:
            raise AnsibleActionFail(
                f"the Python package servewright is not importable by the Python that runs Ansible ({MISSING})"
            )
        _checked, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        self._host = task_vars["inventory_hostname"]
        # Ansible would write every argument, whole releases, into the host's log.
        self._task_vars = {**task_vars, "ansible_no_target_syslog": True}
        self._origin = {
            "reason": arguments["reason"],
            "lock_wait": arguments["lock_wait"],
            "requester": arguments["requester"] or f"{getpass.getuser()}@{socket.gethostname()}",
        }
        try:
            services, problems = self._command(arguments), []
        except InvalidError as error:
            services, problems = [], [problem.as_dict() for problem in error.problems]
        result = _result(arguments["command"], services, problems, arguments["fail_on_drift"])
        if arguments["command"] in DECLARED and not problems and SERVICES_VARIABLE not in task_vars:
            groups = ", ".join([*task_vars["group_names"], "all"])
            note = f"{SERVICES_VARIABLE} is not set for this host: neither in host_vars nor for its groups ({groups})"
            result["servewright"]["note"] = note
            result["warnings"] = [note]
        return result

    def _command(self, arguments):
        command, only, plan = arguments["command"], arguments["only"], None
        if command == "deploy" and arguments["plan"] is not None:
            plan = planned(Path(arguments["plan"])).get(self._host, {})
            only = list(plan)
            if not plan:
                return []
        if command in DECLARED:
            releases, secrets = self._declared(only, with_secrets=command in ("plan", "deploy"))
            if command == "validate":
                return [_ok(release) for release in releases]
            if command == "render":
                return [
                    _ok(release) | {"files": {"unit": release["unit"], "release.json": release}} for release in releases
                ]
            if command == "preflight":
                return self._call("preflight", releases=releases)
            return self._deploy(
                releases, secrets, command == "plan" or self._task.check_mode, arguments["detach"], plan
            )
        if command == "rollback":
            if len(only) != 1:
                raise AnsibleActionFail("rollback takes exactly one service")
            found = self._call("rollback", services=only, to_release=arguments["to_release"], **self._origin)
            return found if arguments["detach"] else [self._followed(item) for item in found]
        if command in ("nccl_bench", "nccl_tune"):
            return self._measure(command.partition("_")[2], only, arguments["measure"])
        if command == "follow":
            found = [self._followed(item) for item in self._call("follow", services=only)]
            for item in found:
                item.get("measured", {}).pop("records", None)  # long, and kept on the host
            return found
        if command == "drift":
            return self._drift(only, arguments["repair"] and not self._task.check_mode, arguments["allow_restart"])
        if command == "bench":
            if not only:
                raise AnsibleActionFail("bench takes the names of services: it loads what it measures")
            options = {"concurrency": arguments["concurrency"], "seconds": arguments["seconds"]}
            return self._call("bench", services=only, **options)
        return self._call(command, services=only, lines=arguments["lines"])

    def _drift(self, only, repair, allow_restart):
        """Look, or mend until nothing is pending: the host restarts one service after the other."""
        if not repair:
            return self._call("drift", services=only)
        done, names = {}, only
        while True:
            found = self._call("drift", services=names, repair=True, allow_restart=allow_restart, **self._origin)
            for item in found:
                mended = done.get(item["service"], {}).get("mended", []) + item.get("mended", [])
                done[item["service"]] = self._followed(dict(item, mended=mended))
            names = [item["service"] for item in found if item["verdict"] == "pending"]
            if not names or any(item["verdict"] in BAD for item in done.values()):
                break
        restarted = [name for name, item in done.items() if item["verdict"] == "committed"]
        for item in self._call("drift", services=restarted) if restarted else []:
            findings = item["findings"]
            done[item["service"]].update(findings=findings, verdict="drift" if findings else "mended")
        return list(done.values())

    def _declared(self, only, with_secrets):
        return declared(
            self._variables(),
            only,
            Path(__file__).resolve().parents[2] / "templates",
            self._secret if with_secrets else None,
        )

    def _measure(self, what, only, given):
        """One service after the other: they may claim the same GPUs."""
        releases, _secrets = self._declared(only, with_secrets=False)
        variables = self._variables()
        program = base64.b64encode(ship.program()).decode()
        done = []
        for release in releases:
            try:
                options = measure.Options.model_validate(given)
                request = measure.request(what, release, options, variables)
            except ValueError as error:
                done.append(_ok(release) | {"verdict": "refused", "message": str(error)})
                continue
            found = self._call(
                "measure", releases=[release], request=request, program=program, stop=options.stop, **self._origin
            )
            done += [self._followed(item) for item in found]
        return done

    def _variables(self):
        return {
            name: self._templar.template(value) if isinstance(value, (str, list, dict)) else value
            for name, value in self._task_vars.items()
            if name.startswith("servewright_")
        }

    def _secret(self, name):
        """Value of an Ansible variable that holds a secret, or None."""
        return self._templar.template(self._task_vars[name]) if name in self._task_vars else None

    def _deploy(self, releases, secrets, check, detach, plan):
        """Deploy until nothing is pending: the host carries out one transaction after the other."""
        done, host = {}, host_settings(self._variables())
        while releases:
            found = self._call(
                "deploy", check=check, releases=releases, secrets=secrets, host=host, plan=plan, **self._origin
            )
            plan = None  # the host has held all of it to the plan; what is pending changes nothing of that
            annotate(found, self._variables())
            for item in found:
                done[item["service"]] = item if detach or check else self._followed(item)
            pending = {item["service"] for item in found if item["verdict"] == "pending"}
            if detach or any(item["verdict"] in BAD for item in done.values()):
                break
            releases = [release for release in releases if release["service"] in pending]
        return list(done.values())

    def _followed(self, item):
        """Follow a running transaction to its verdict; any other result comes back as it is."""
        begin = last = time.monotonic()
        plan = {name: item[name] for name in ("changes", "checks", "findings", "mended") if name in item}
        while item["verdict"] == "running":
            item = (
                self._call("follow", services=[item["service"]], transaction=item["transaction"], wait=FOLLOW_SECONDS)[
                    0
                ]
                | plan
            )
            now = time.monotonic()
            if item["verdict"] == "running":
                last = self._progress(item, now - begin, now, last)
        return item

    def _progress(self, item, elapsed, now, last):
        entry = {
            "time": time.time(),
            "host": self._host,
            "service": item["service"],
            "step": item.get("step", ""),
            "elapsed": round(elapsed, 1),
            "line": item.get("line", ""),
        }
        path = os.environ.get("SERVEWRIGHT_PROGRESS")
        if path:
            with open(path, "a", encoding="utf-8") as stream:
                stream.write(json.dumps(entry) + "\n")
        elif now - last >= HEARTBEAT_SECONDS:
            display.display(
                f"{self._host}: {entry['service']}: {entry['step']}, {entry['elapsed']:.0f} s: {entry['line']}"
            )
            return now
        return last

    def _call(self, operation, check=False, **arguments):
        """One call of the host module; gives its results. An error of the call itself ends the task."""
        before, self._task.check_mode = self._task.check_mode, check
        try:
            answer = self._execute_module(
                "servewright.llm.host", {"operation": operation, **arguments}, task_vars=self._task_vars
            )
        finally:
            self._task.check_mode = before
        if "services" not in answer:
            said = (answer.get(name) for name in ("msg", "module_stderr", "exception"))
            message = next(filter(None, said), "the host module gave no result")
            raise AnsibleActionFail(message, result=answer)
        return answer["services"]


def _reason(item):
    return ", ".join(one["id"] for one in item["findings"]) if item["verdict"] == "drift" else item["message"]


def _ok(release):
    return {"service": release["service"], "verdict": "ok", "release": None, "message": ""}


def _result(command, services, problems, fail_on_drift):
    bad = [item for item in services if item["verdict"] in BAD or (item["verdict"] == "drift" and fail_on_drift)]
    message = "; ".join(f"{item['service']}: {item['verdict']}: {_reason(item)}" for item in bad)
    if problems:
        message = "\n".join(
            [
                "the declaration is not valid:",
                *(
                    f"{p['file']}:{p['line']}: {p['path']}: {p['message']}" + (f" ({p['hint']})" if p["hint"] else "")
                    for p in problems
                ),
            ]
        )
    result = {
        "changed": any(item["verdict"] in CHANGED for item in services),
        "failed": bool(bad or problems),
        "servewright": {"command": command, "problems": problems, "services": services},
    }
    return result | ({"msg": message} if message else {})
