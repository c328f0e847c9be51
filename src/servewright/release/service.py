"""From the variables of a host to its releases and the values of their secrets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from servewright.nccl import profiles
from servewright.release.render import render
from servewright.spec import nccl, validate
from servewright.spec.host import Host
from servewright.spec.positions import from_ansible
from servewright.spec.problems import NOT_SHOWN, InvalidError, Problem
from servewright.spec.service import Service

Secrets = dict[str, dict[str, str]]


def declared(
    variables: Mapping[str, Any], only: Sequence[str], templates: Path, secret: Callable[[str], Any] | None
) -> tuple[list[dict[str, Any]], Secrets]:
    """Releases of the services of one host, and the values of secrets that the controller knows, by service and name.

    `variables` are the host's variables, `only` selects services by name (empty: all), `secret` gives the value of an
    Ansible variable or None; without it secrets are not read. Raises InvalidError with every problem.
    """
    services, host, own, positions = valid(variables)
    unknown = sorted(set(only) - {service.name for service in services})
    if unknown:
        raise InvalidError(
            Problem(
                (validate.SERVICES_VARIABLE,),
                f"no service {name!r} is declared for this host",
                name,
                "declared: " + (", ".join(service.name for service in services) or "none"),
            ).located(positions)
            for name in unknown
        )
    chosen = {index: service for index, service in enumerate(services) if not only or service.name in only}
    secrets = {} if secret is None else _secrets(chosen, secret, positions)
    rendered = [render(one, nccl_environment(one, host, own), templates, host) for one in chosen.values()]
    return rendered, secrets


def valid(
    variables: Mapping[str, Any],
) -> tuple[list[Service], Host, list[profiles.Profile], dict[Any, tuple[str, int]]]:
    """The services, the host and the NCCL profiles that variables declare, and where each key stands.

    Raises InvalidError with every problem.
    """
    problems: list[Problem] = []
    for problem in validate.misspelt(variables):
        place = from_ansible(variables[str(problem.path[0])], problem.path)[1]
        problems.append(problem.located(place))
    data: dict[str, Any] = {}
    positions: dict[Any, tuple[str, int]] = {}
    for name in validate.VARIABLES:
        data[name], found = from_ansible(variables.get(name), (name,))
        positions |= found
    if validate.SERVICES_VARIABLE not in variables:
        data[validate.SERVICES_VARIABLE] = []
    host = validate.attempt(problems, validate.host, data[validate.HOST_VARIABLE], positions)
    own = validate.attempt(problems, validate.profiles, data[validate.PROFILES_VARIABLE], positions)
    # What else is wrong may be why a profile is not known.
    sure = None if problems else own
    services = validate.attempt(problems, validate.services, data[validate.SERVICES_VARIABLE], positions, host, sure)
    if problems or host is None or own is None or services is None:
        raise InvalidError(problems)
    return services, host, own, positions


def host_settings(variables: Mapping[str, Any]) -> dict[str, Any]:
    """What the host itself declares, as plain data. Raises InvalidError."""
    data, positions = from_ansible(variables.get(validate.HOST_VARIABLE), (validate.HOST_VARIABLE,))
    return validate.host(data, positions).model_dump(mode="json")


def nccl_environment(service: Service, host: Host, own: Sequence[profiles.Profile]) -> dict[str, str]:
    """The resolved NCCL environment of a service."""
    rows = profiles.resolve(service.nccl.profile, own, service.nccl.environment, nccl.facts(service, host))
    return {row.variable: row.value for row in rows}


def _secrets(
    services: Mapping[int, Service], secret: Callable[[str], Any], positions: Mapping[Any, tuple[str, int]]
) -> Secrets:
    values: Secrets = {}
    problems = []
    for index, service in services.items():
        for name, reference in service.secrets.items():
            path = (validate.SERVICES_VARIABLE, index, "secrets", name)
            if reference.file is not None:
                continue  # the host reads it
            value = os.environ.get(reference.env) if reference.env is not None else secret(str(reference.variable))
            source = f"environment variable {reference.env}" if reference.env else f"variable {reference.variable}"
            if not isinstance(value, str) or not value:
                problems.append(Problem(path, f"{source} is not set on the controller, or is not text", NOT_SHOWN))
            else:
                values.setdefault(service.name, {})[name] = str(value)
    if problems:
        raise InvalidError(problem.located(positions) for problem in problems)
    return values
