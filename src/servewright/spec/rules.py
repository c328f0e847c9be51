"""Rules over several fields, several services or the host, which a field's type cannot express."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any

from ansible_collections.servewright.llm.plugins.module_utils.host import attention, port_plan
from ansible_collections.servewright.llm.plugins.module_utils.host.nccl import debug
from servewright.engines import ENGINES
from servewright.engines.base import extra, flag_words
from servewright.nccl.profiles import AUTO, Profile, built_in
from servewright.spec import nccl
from servewright.spec.host import Host
from servewright.spec.problems import NOT_SHOWN, SECRET_NAME, Path, Problem, nearest
from servewright.spec.service import Service, SglangService, VllmService, user_of

_DERIVED = {
    "CUDA_VISIBLE_DEVICES": "comes from 'gpus'",
    "CUDA_DEVICE_ORDER": "'gpus' counts in PCI bus order",
    "SERVEWRIGHT_SERVICE": "is set by servewright",
}


def check(
    services: Mapping[int, Service], host: Host | None, profiles: Sequence[Profile] | None, nccl_errors: bool = True
) -> list[Problem]:
    """Problems of services, by their index in the declaration; `host` and `profiles` are None where they are not known.

    A service may lack attributes, where what is declared for them is not valid.
    """
    found: list[Problem] = []
    for index, service in services.items():
        path: Path = ("servewright_services", index)
        for rule in _RULES:
            found += _known(rule(service, path))
        found += _known(_claim(service, path, host))
        found += _known(_attention(service, path, host))
        if profiles is None:
            continue
        unknown = list(_known(_profile(service, path, profiles)))
        found += unknown
        if nccl_errors and not unknown:
            found += _known(_nccl(service, path, host, profiles))
    for (one, first), (two, second) in combinations(services.items(), 2):
        for of_two in (_names, _ports, _claims):
            found += _known(of_two(first, second, ("servewright_services", two), one))
    return found


def _known(problems: Iterator[Problem]) -> Iterator[Problem]:
    """What a rule finds before it reads an attribute that is not there; what it would say then may be wrong."""
    with suppress(AttributeError):
        yield from problems


def _gpus(service: Service, path: Path) -> Iterator[Problem]:
    gpus, sizes = service.gpus, service.parallelism
    if len(set(gpus)) != len(gpus):
        yield Problem((*path, "gpus"), f"{gpus} names a GPU twice", gpus)
    attention = "enable_dp_attention" in {name.lstrip("-").replace("-", "_") for name in service.extra_args}
    data = 1 if attention else sizes.data  # data-parallel attention runs inside the tensor parallel group
    need = sizes.tensor * sizes.pipeline * data
    if gpus and need != len(gpus):
        yield Problem(
            (*path, "parallelism"),
            f"tensor {sizes.tensor} x pipeline {sizes.pipeline} x data {data} needs {need} "
            f"GPUs, but {len(gpus)} are claimed",
            need,
            f"claim {need} GPUs or set tensor to {max(1, len(gpus) // (sizes.pipeline * data))}",
        )


def _own_ports(service: Service, path: Path) -> Iterator[Problem]:
    for port, (first, *_, last) in port_plan.twice(_told(service)).items():
        message = f"{port} ({last}) is also the {first} port of this service"
        yield Problem((*path, *_port_key(service, port)), message, port, "declare another port for one of them")


def _claim(service: Service, path: Path, host: Host | None) -> Iterator[Problem]:
    if host is not None and host.gpus is not None:
        for position, gpu in enumerate(service.gpus):
            if gpu >= host.gpus:
                yield Problem(
                    (*path, "gpus", position),
                    f"there is no GPU {gpu}: the host declares {host.gpus}",
                    gpu,
                    f"0 to {host.gpus - 1}" if host.gpus else "none",
                )


def _attention(service: Service, path: Path, host: Host | None) -> Iterator[Problem]:
    """A declared backend that cannot run on the declared GPUs; what depends on the model is preflight's."""
    backend = (service.options.attention_backend or "").lower()
    if host is None or host.compute_capability is None or not backend or not service.gpus:
        return
    facts = {
        "engine": service.engine,
        "version": service.version,
        "backend": backend,
        "kind": attention.kind_of_backend(backend),
        "major": int(host.compute_capability.split(".")[0]),
        "cache": service.options.kv_cache_dtype or "",
        "experts": 1,
    }
    for severity, what, use in attention.findings(facts):
        if severity == attention.REFUSE:
            yield Problem((*path, "options", "attention_backend"), what, service.options.attention_backend, use)


def _flags(service: Service, path: Path) -> Iterator[Problem]:
    engine, seen = ENGINES[service.engine], dict[str, str]()
    for name, value in service.extra_args.items():
        at = (*path, "extra_args", name)
        # vLLM takes either, and no flag of the engines has both.
        flag = (name if name.startswith("-") else f"--{name}").replace("_", "-")
        first = seen.setdefault(flag, name)
        option = flag.lstrip("-").replace("-", "_")
        if first != name:
            yield Problem(at, f"{flag} is also given as {first!r}", value, "leave one of them out")
        elif flag in engine.owned:
            yield Problem(at, f"{flag} is set by servewright", value, f"declare {engine.owned[flag]}")
        elif flag in engine.secret_flags:
            yield Problem(at, f"{flag} would put a secret on the command line", NOT_SHOWN, engine.secret_flags[flag])
        elif flag in engine.unseen_flags:
            yield Problem(at, f"{flag} hides the server from its gates", value, engine.unseen_flags[flag])
        elif option in type(service.options).model_fields:
            yield Problem(at, f"{flag} is a typed option", value, f"declare options.{option}")
        elif not re.fullmatch(r"--?[A-Za-z0-9][A-Za-z0-9._-]*", flag):
            yield Problem(at, f"{name!r} is not the name of a flag", value, "one flag a key, its value apart from it")


def _environment(service: Service, path: Path) -> Iterator[Problem]:
    engine = ENGINES[service.engine]
    for name, value in service.environment.items():
        at = (*path, "environment", name)
        if name.startswith("NCCL_"):
            yield Problem(at, f"{name} is an NCCL setting", value, "declare it under nccl.environment")
        elif name in _DERIVED:
            yield Problem(at, f"{name} {_DERIVED[name]}", value, "leave it out")
        elif name in engine.reserved_environment:
            yield Problem(at, f"{name} does not do what it says", value, engine.reserved_environment[name])
        elif SECRET_NAME.search(name) and name not in ("TOKENIZERS_PARALLELISM",):
            yield Problem(
                at,
                f"{name} looks like a secret, and the environment of a unit can be read by every user",
                NOT_SHOWN,
                "declare it under 'secrets', by reference",
            )
        if name in service.secrets:
            yield Problem(at, f"{name} is also declared under 'secrets'", NOT_SHOWN, "leave one of them out")
    for name in service.nccl.environment:
        if not name.startswith("NCCL_"):
            yield Problem(
                (*path, "nccl", "environment", name),
                f"{name} is not an NCCL variable",
                service.nccl.environment[name],
                "declare it under 'environment'",
            )


def _timings(service: Service, path: Path) -> Iterator[Problem]:
    limits, verify = service.limits, service.verify
    if limits.gpu_wait >= limits.start_timeout:
        yield Problem(
            (*path, "limits", "gpu_wait"),
            f"{limits.gpu_wait:g} s is not below start_timeout "
            f"({limits.start_timeout:g} s), so systemd would end the wait",
            limits.gpu_wait,
        )
    if verify.performance.repeats > verify.performance.most_repeats:
        yield Problem(
            (*path, "verify", "performance", "repeats"),
            f"{verify.performance.repeats} is above most_repeats ({verify.performance.most_repeats})",
            verify.performance.repeats,
        )
    if verify.performance.floors.throughput is not None and not verify.performance.concurrency:
        yield Problem(
            (*path, "verify", "performance", "floors", "throughput"),
            "throughput is only measured at a declared concurrency",
            verify.performance.floors.throughput,
            "declare verify.performance.concurrency",
        )
    if verify.stall_timeout > verify.load_timeout:
        yield Problem(
            (*path, "verify", "stall_timeout"),
            f"{verify.stall_timeout:g} s is above load_timeout "
            f"({verify.load_timeout:g} s), so a stall would never be seen",
            verify.stall_timeout,
        )


def _shared_memory(service: Service, path: Path) -> Iterator[Problem]:
    size = service.shared_memory_size
    if service.shared_memory == "private" and size is None:
        yield Problem((*path, "shared_memory"), "a private /dev/shm needs a size", "private", "shared_memory_size: 64G")
    if service.shared_memory == "shared" and size is not None:
        at = (*path, "shared_memory_size")
        yield Problem(at, "the host's own /dev/shm has its own size", size, "shared_memory: private, or leave this out")


def _prompts(service: Service, path: Path) -> Iterator[Problem]:
    for index, prompt in enumerate(service.verify.prompts):
        try:
            re.compile(prompt.expect)
        except re.error as error:
            yield Problem(
                (*path, "verify", "prompts", index, "expect"),
                f"{prompt.expect!r} is not a regular expression: {error}",
                prompt.expect,
            )
        options = service.options
        parser = options.tool_call_parser and getattr(options, "enable_auto_tool_choice", True)
        if prompt.mode == "tool" and not parser:
            needed = "options.tool_call_parser"
            if isinstance(service, VllmService):
                needed = f"options.enable_auto_tool_choice and {needed}"
            what = f"{service.engine} calls no tool without {needed}"
            yield Problem((*path, "verify", "prompts", index, "mode"), what, prompt.mode, f"declare {needed}")


def _watch(service: Service, path: Path) -> Iterator[Problem]:
    if isinstance(service, SglangService):
        off = "" if service.options.enable_metrics else "options.enable_metrics: false"
    else:
        off = "--disable-log-stats" if extra(service, "disable-log-stats") else ""
    if service.watch is not None and off:
        what = f"{off} takes away the counters by which the watch tells a server that is busy from one that is dead"
        yield Problem((*path, "watch"), what, off, f"leave out {off}, or the watch")


def _speculation(service: Service, path: Path) -> Iterator[Problem]:
    if not isinstance(service, SglangService) or service.options.max_running_requests is not None:
        return
    if extra(service, "speculative-algorithm"):
        yield Problem(
            (*path, "options", "max_running_requests"),
            "is missing, and with speculation SGLang then runs 48 requests at most (sgl-project/sglang#34290)",
            None,
            "declare it",
        )


def _user(service: Service, path: Path) -> Iterator[Problem]:
    if user_of(service) == "root":
        yield Problem((*path, "user"), "an engine must not run as root", "root", "leave it out for a user of its own")


def _profile(service: Service, path: Path, profiles: Sequence[Profile]) -> Iterator[Problem]:
    name = service.nccl.profile
    known = {AUTO, *built_in(), *(profile.name for profile in profiles)}
    if name is not None and name not in known:
        yield Problem((*path, "nccl", "profile"), f"unknown NCCL profile {name!r}", name, nearest(name, known))


def _nccl(service: Service, path: Path, host: Host | None, profiles: Sequence[Profile]) -> Iterator[Problem]:
    """Errors of the NCCL linter that hold whatever NCCL the engine brings, since that is known on the host only."""
    # Not at the top: most that import these rules never get here.
    from servewright.nccl import registry
    from servewright.nccl.linter import lint

    try:
        settings = nccl.settings(service, path, host, profiles)
    except ValueError as error:
        yield Problem((*path, "nccl", "profile"), str(error), service.nccl.profile)
        return
    environment = {setting.row.variable: setting.row.value for setting in settings}
    places = {setting.row.variable: setting.path for setting in settings}
    if service.nccl.proof != "off" and len(service.gpus) > 1:
        for name, reason, better in debug.unfit(environment):
            yield Problem(
                places[name],
                f"{name}={environment[name]}: {reason}",
                environment[name],
                f"{better}; or set nccl.proof to off",
            )
    facts = nccl.facts(service, host)
    errors = [
        [
            finding
            for finding in lint(environment, facts.model_copy(update={"nccl_version": at}))
            if finding.severity == "error"
        ]
        for at in (registry.OLDEST, registry.GUIDE)
    ]
    old = {(finding.id, finding.variable) for finding in errors[0]}
    for finding in errors[1]:
        if (finding.id, finding.variable) in old:
            what = f"{finding.variable}={finding.value}: " if finding.variable else ""
            yield Problem(
                places[finding.variable] if finding.variable else path,
                f"{finding.id}: {what}{finding.message}",
                finding.value,
                finding.suggestion,
            )


def _names(first: Service, second: Service, path: Path, one: int) -> Iterator[Problem]:
    if first.name == second.name:
        yield Problem((*path, "name"), f"{second.name!r} is also the name of servewright_services[{one}]", second.name)


def _ports(first: Service, second: Service, path: Path, one: int) -> Iterator[Problem]:
    """Ports of two services, by their numbers alone as in preflight: an engine opens most of them on any address."""
    theirs, mine = (port_plan.fixed(_told(service)) for service in (first, second))
    # One problem a key: data-parallel attention has seven ports of one.
    for at, port in {_port_key(second, port): port for port in sorted(mine.keys() & theirs, reverse=True)}.items():
        what = "" if mine[port] == "HTTP" else f" ({mine[port]})"
        message = f"{port}{what} is also the {theirs[port]} port of service {_called(first, one)}"
        yield Problem((*path, *at), message, port, "declare another port for one of them")


def _claims(first: Service, second: Service, path: Path, one: int) -> Iterator[Problem]:
    shared = sorted(set(first.gpus) & set(second.gpus))
    if shared:
        yield Problem(
            (*path, "gpus"),
            f"GPU {', '.join(map(str, shared))} is also claimed by service {_called(first, one)}",
            second.gpus,
        )


def _called(service: Service, index: int) -> str:
    return repr(getattr(service, "name", f"servewright_services[{index}]"))


def _told(service: Service) -> dict[str, Any]:
    """What the plan of ports reads of a release."""
    # Nothing but ports is read: any other option may be one that is not valid.
    options = {name: getattr(service.options, name) for name in type(service.options).model_fields if "port" in name}
    flags = [flag_words(name, value) for name, value in (options | service.extra_args).items()]
    words = [word for flag in flags for words in flag for word in words]
    return {"engine": service.engine, "listen": {"port": service.listen.port}, "argv": words}


def _port_key(service: Service, port: int) -> Path:
    """The key that declares a port; listen.port for those that an engine derives from it."""
    for part, declared in (("options", vars(service.options)), ("extra_args", service.extra_args)):
        for name, value in declared.items():
            if re.search("port|addr", name) and str(value).rpartition(":")[2] == str(port):
                return part, name
    return "listen", "port"


_RULES = (_gpus, _own_ports, _flags, _environment, _timings, _shared_memory, _prompts, _user, _speculation, _watch)
