"""A valid service becomes a release: argument list, environment, unit text and what the gates will expect."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from ansible_collections.servewright.llm.plugins.module_utils.host import paths, quoting
from ansible_collections.servewright.llm.plugins.module_utils.host.nccl import debug
from servewright.engines import ENGINES
from servewright.release.digest import digest
from servewright.spec.host import Host
from servewright.spec.service import Service, user_of, venv_of

SCHEMA = 1
HOST_PYZ = "/usr/local/lib/servewright/host.pyz"
SYSTEM_PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOST_PYTHON = "/usr/bin/python3"
CACHE_VARIABLES = {
    # Each tool ignores the others' variables, and HOME alone is not enough (the user's own HOME may not exist).
    "HOME": "",
    "XDG_CACHE_HOME": "cache",
    "XDG_CONFIG_HOME": "config",
    "HF_HOME": "huggingface",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "NUMBA_CACHE_DIR": "numba",
    "OUTLINES_CACHE_DIR": "outlines",
    "VLLM_CACHE_ROOT": "vllm",
    "CUDA_CACHE_PATH": "cuda",
}


def environment_of(service: Service, nccl: dict[str, str]) -> dict[str, str]:
    """The whole non-secret environment of the engine, sorted by name; what the user declares wins.

    `nccl` is the resolved NCCL environment (profile and inventory).
    """
    engine = ENGINES[service.engine]
    home = cache_directory(service)
    environment = {name: f"{home}/{folder}".rstrip("/") for name, folder in CACHE_VARIABLES.items()}
    environment |= {
        "PATH": f"{venv_of(service)}/bin:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        paths.SERVICE_VARIABLE: service.name,
    }
    if service.gpus:
        environment |= {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, service.gpus)),
        }
    environment |= {**engine.environment, **nccl, **service.environment}
    return dict(sorted(environment.items()))


def cache_directory(service: Service) -> str:
    """Folder of the engine's caches, keyed by engine so that an upgrade and a rollback each find their own."""
    return f"/var/cache/{cache_name(service)}"


def cache_name(service: Service) -> str:
    """The same, as CacheDirectory= wants it: relative to /var/cache."""
    key = digest([service.engine, service.version, venv_of(service)])[:12]
    return f"servewright/{service.name}/{key}"


def render(service: Service, nccl: dict[str, str], templates: Path, host: Host | None = None) -> dict[str, Any]:
    """The release of a service as the host stores it (`release.json`), without its number.

    Deterministic: no time, host name or path of the controller goes in. `templates` is the folder of the unit
    templates. Secrets are only named; their values travel apart and end in a file of mode 0600.
    """
    engine = ENGINES[service.engine]
    command, flags = engine.command(service, venv_of(service)), engine.flags(service)
    if service.nccl.proof == "always" and len(service.gpus) > 1:
        nccl = {**debug.missing(nccl), **nccl}
    environment = environment_of(service, nccl)
    limits, proved = service.limits, service.nccl.proof != "off" and len(service.gpus) > 1
    context: dict[str, Any] = {
        "service": service,
        "engine": engine,
        "command": command,
        "flags": flags,
        "environment": environment,
        "nccl": {name: environment[name] for name in sorted(nccl)},
        "user": user_of(service),
        "cache": cache_name(service),
        "log_switch": paths.nccl_log(service.name) if proved and service.nccl.proof == "verify" else None,
        "log_folder": f"{debug.FOLDER}:mode=1777,size={debug.SIZE},noexec,nosuid,nodev" if proved else None,
        "host_command": f"{HOST_PYTHON} -I {HOST_PYZ}",
        "description": service.description or f"{service.model.served_name} on {service.engine} {service.version}",
        # Five quick crashes must trip the limiter, and so must a model that dies only at the end of a long load.
        "limit_interval": round(
            limits.restart_burst * (limits.restart_delay + limits.start_timeout + service.verify.load_timeout)
        ),
    }
    release: dict[str, Any] = {
        "schema": SCHEMA,
        "service": service.name,
        "engine": service.engine,
        "version": service.version,
        "venv": venv_of(service),
        "model": service.model.model_dump(mode="json"),
        "argv": command + [word for words in flags for word in words],
        "environment": environment,
        "secrets": {
            name: reference.model_dump(exclude_none=True) for name, reference in sorted(service.secrets.items())
        },
        "user": user_of(service),
        "cache": cache_directory(service),
        "gpus": list(service.gpus),
        "parallelism": service.parallelism.model_dump(),
        # Preflight compares it with the GPUs that are there.
        "host": host.model_dump(exclude_none=True) if host else {},
        "listen": service.listen.model_dump(),
        "limits": limits.model_dump(),
        "verify": service.verify.model_dump(),
        "keep": service.keep.model_dump(),
        "watch": service.watch
        and {**service.watch.model_dump(), "metrics_folder": host.metrics_folder if host else None},
        "maintenance": list(service.maintenance),
        "expected": engine.expected(service),
        "endpoints": {name: list(paths) for name, paths in engine.endpoints.items()},
        "log_lines": dict(engine.log_lines),
        "truth": {name: [list(row) for row in rows] for name, rows in sorted(engine.truth.items())},
        "observed": engine.observed(service),
        "metrics": {name: list(names) for name, names in engine.metrics.items()},
        "acceptance": dict(engine.acceptance),
        "nccl": sorted(nccl),
        "proof": {
            "mode": service.nccl.proof,
            "ranks": len(service.gpus),
            "joined": service.parallelism.tensor * service.parallelism.pipeline > 1,
        },
        "unit": _templates(templates).get_template(f"{service.engine}.service.j2").render(context),
    }
    return release | {"digest": digest(release)}


@lru_cache(maxsize=4)
def _templates(folder: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        "argument": quoting.quote_argument,
        "arguments": lambda words: " ".join(quoting.quote_argument(word) for word in words),
        "text": quoting.plain_text,
        "seconds": quoting.seconds,
    }
    environment.globals["assignment"] = quoting.quote_assignment
    return environment
