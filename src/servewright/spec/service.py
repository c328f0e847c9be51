"""The declared service: one engine process on one host."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from servewright.spec.base import (
    AbsolutePath,
    Argument,
    EnvironmentName,
    EnvironmentValue,
    HostName,
    Port,
    Seconds,
    Strict,
    Text,
)
from servewright.spec.options import OPTIONS, Engine, SglangOptions, VllmOptions
from servewright.spec.performance import Performance

Size = Annotated[int, Field(ge=1)]
_TIME = r"([01]\d|2[0-3]):[0-5]\d"
Window = Annotated[str, Field(pattern=rf"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun|daily) {_TIME}-{_TIME}$")]


class Model(Strict):
    """The model that is served."""

    path: AbsolutePath = Field(description="Folder of the model on the host.")
    served_name: Text = Field(min_length=1, description="Name that clients ask for.")
    context_length: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Longest context in tokens; without it the model's own limit."
    )


class Parallelism(Strict):
    """How the model is spread over the claimed GPUs. Their product must equal the number of claimed GPUs."""

    tensor: Size = Field(1, description="Tensor parallel size.")
    pipeline: Size = Field(1, description="Pipeline parallel size.")
    data: Size = Field(1, description="Data parallel size.")
    expert: Size = Field(1, description="Expert parallel size; lies inside the others, so it adds no GPU.")


class Listen(Strict):
    """Where the engine's HTTP server listens."""

    host: HostName = Field("127.0.0.1", description="Address to listen on, or a name of it.")
    port: Port = Field(description="TCP port.")


class SecretReference(Strict):
    """Where the value of a secret comes from; the value itself is never part of the specification."""

    variable: Text | None = Field(None, description="Name of an Ansible variable, for instance one kept in a vault.")
    env: EnvironmentName | None = Field(None, description="Environment variable of the controller.")
    file: AbsolutePath | None = Field(
        None, description="File on the host; the value is its content without a final newline."
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> SecretReference:
        if sum(value is not None for value in (self.variable, self.env, self.file)) != 1:
            raise ValueError("exactly one of 'variable', 'env' and 'file' must be given")
        return self


class Nccl(Strict):
    """The NCCL environment: a named profile and what differs from it."""

    profile: Text | None = Field(None, description="Name of a profile; without it nothing is set.")
    environment: dict[EnvironmentName, EnvironmentValue | None] = Field(
        default_factory=dict,
        description="Variables that replace or add to those of the profile; null takes one of the profile away.",
    )
    proof: Literal["verify", "always", "off"] = Field(
        "verify",
        description="When NCCL's log is on, by which the gate `nccl` proves the settings of a service on several GPUs: "
        "for the start that a deploy makes, for every start, or never.",
    )

    @field_validator("proof", mode="before")
    @classmethod
    def _off_of_yaml(cls, value: object) -> object:
        return "off" if value is False else value  # off without quotes is a boolean


class Prompt(Strict):
    """A prompt with a known answer, asked at temperature 0."""

    prompt: Text = Field(min_length=1, description="Text to complete.")
    expect: Text = Field(description="Regular expression that the answer must contain.")
    max_tokens: Size = Field(16, description="Most tokens of the answer.")
    mode: Literal["completion", "chat", "json", "tool"] = Field(
        "completion",
        description="How it is asked: text to go on with, or a message through the chat template; `json` in JSON mode "
        "(the answer must be JSON), `tool` with a tool get_weather(city), whose arguments in the call must match.",
    )


class Burst(Strict):
    """Short requests at once, which all have to be answered; of those with a known answer, most rightly."""

    requests: Annotated[int, Field(ge=0)] = Field(
        200, description="How many; 0 for none. A server can answer a hundred and hang."
    )
    concurrency: Size = Field(16, description="How many at the same time.")


class Verify(Strict):
    """What proves that a release is good, and how long that may take."""

    load_timeout: Seconds = Field(1800, description="Upper bound in seconds from start to ready.")
    stall_timeout: Seconds = Field(
        300,
        description="Seconds without a new log line, bytes read or GPU memory taken after which loading has failed.",
    )
    stable: Annotated[float, Field(ge=0, le=31_536_000)] = Field(
        10, description="Seconds that the unit must run without a restart after it is ready."
    )
    request_timeout: Seconds = Field(60, description="Seconds after which a request of a gate has failed.")
    attempts: Size = Field(
        3, description="Failures in a row that make a gate fail. Those of a server that is busy do not count."
    )
    busy_timeout: Seconds = Field(
        300,
        description="Seconds that a gate waits for a server that says it is busy (429, 503) or works for others.",
    )
    prompts: list[Prompt] = Field(
        default_factory=lambda: [Prompt(prompt="The capital of France is", expect="Paris")],
        description="Prompts with known answers.",
    )
    long_prompt: Annotated[int, Field(ge=0)] = Field(
        4000,
        description="Tokens, about, of a prompt in whose middle the model has to find a word again; at most half the "
        "context; 0 for none.",
    )
    quality: bool = Field(
        True,
        description="Judge the text itself: no token over and over, the word in the long prompt found again, the "
        "answers of the release before. False is for models with random weights.",
    )
    burst: Burst = Field(default_factory=Burst, description="Many short requests at once.")
    min_accept_length: Annotated[float, Field(ge=1)] | None = Field(
        None, description="Tokens a step that speculative decoding must reach on average; without it nothing is asked."
    )
    performance: Performance = Field(default_factory=Performance, description="How fast the release has to be.")


class Limits(Strict):
    """Limits and timings of the systemd unit."""

    # The kernel's own bound of fs.nr_open.
    open_files: Annotated[int, Field(ge=1024, le=2147483584)] = Field(1048576, description="LimitNOFILE.")
    start_timeout: Seconds = Field(
        300,
        description="TimeoutStartSec: bound in seconds for the checks before the engine's process is started.",
    )
    stop_timeout: Seconds = Field(120, description="TimeoutStopSec: seconds between SIGTERM and SIGKILL.")
    gpu_wait: Seconds = Field(120, description="Seconds to wait before a start for the claimed GPUs to be free.")
    restart_delay: Seconds = Field(15, description="RestartSec: seconds between a crash and the next start.")
    restart_burst: Annotated[int, Field(ge=1, le=1000)] = Field(
        3,
        description="Starts after which systemd gives up. The window is derived, so that it can really trip.",
    )


class Keep(Strict):
    """What stays on the host of earlier releases; the committed one and the one before it always do."""

    releases: Size = Field(10, description="Most releases, and most transactions in the history.")
    days: Annotated[int, Field(ge=1, le=36500)] = Field(
        180, description="Days after which a release or transaction goes."
    )


class Watch(Strict):
    """A systemd timer on the host that looks, with one short request, whether the service answers."""

    every: Annotated[float, Field(ge=5, le=86400)] = Field(
        30, description="Seconds from the end of one look to the next."
    )
    failures: Size = Field(
        3,
        description="Failures in a row that make a service dead. No answer within verify.request_timeout is one, "
        "unless the engine's counters move meanwhile.",
    )
    restart: bool = Field(
        False,
        description="Start a dead service again, through preflight, the transaction and its gates: once an hour at "
        "most, and only after it has answered since the last time. Without it the watch only tells.",
    )


class ServiceBase(Strict):
    """What services of every engine declare."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,26}$")] = Field(
        description="Name of the service and of its unit: lower case letters, digits and '-', at most 27."
    )
    description: Text | None = Field(None, description="Description of the unit; without it engine and model.")
    version: Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+-]*$")] = Field(description="Version of the engine.")
    venv: AbsolutePath | None = Field(
        None,
        description="Virtual environment of the engine; without it /opt/servewright/engines/<engine>-<version>.",
    )
    model: Model = Field(description="The model that is served.")
    gpus: list[Annotated[int, Field(ge=0, le=255)]] = Field(
        default_factory=list,
        description="The claim: indices (PCI bus order) of the GPUs this service holds, for instance [0, 1]; "
        "empty: CPU.",
    )
    parallelism: Parallelism = Field(default_factory=Parallelism, description="How the model is spread over the GPUs.")
    listen: Listen = Field(description="Where the HTTP server listens.")
    extra_args: dict[Text, Argument] = Field(
        default_factory=dict,
        description="Further flags: true is the flag alone, false and null leave it out, a list is several values, "
        "a mapping is one JSON argument.",
    )
    environment: dict[EnvironmentName, EnvironmentValue] = Field(
        default_factory=dict, description="Further environment variables."
    )
    secrets: dict[EnvironmentName, SecretReference] = Field(
        default_factory=dict, description="Environment variables whose values are secret, by reference."
    )
    nccl: Nccl = Field(default_factory=Nccl, description="The NCCL environment.")
    verify: Verify = Field(default_factory=Verify, description="What proves that a release is good.")
    limits: Limits = Field(default_factory=Limits, description="Limits and timings of the unit.")
    shared_memory: Literal["shared", "private"] = Field(
        "shared", description="Use the /dev/shm of the host, or one of the service's own that ends with it."
    )
    shared_memory_size: Annotated[str, Field(pattern=r"^[1-9][0-9]*[MG]$")] | None = Field(
        None, description="Size of a private /dev/shm in MiB or GiB, for instance 64G; it is memory of the host."
    )
    keep: Keep = Field(default_factory=Keep, description="What stays on the host of earlier releases.")
    watch: Watch | None = Field(
        None, description="Look again and again whether the service answers; without it nobody does after a deploy."
    )
    maintenance: list[Window] = Field(
        default_factory=list,
        description="Times on the host's clock at which `drift --repair` may restart the service, "
        "for instance 'Sun 03:00-05:00' or 'daily 23:30-00:30'.",
    )
    user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,30}$")] | None = Field(
        None, description="System user of the service, made when missing; without it llm-<name>."
    )


class SglangService(ServiceBase):
    """A service run by SGLang."""

    engine: Literal["sglang"] = Field(description="The engine.")
    options: SglangOptions = Field(default_factory=SglangOptions, description="Typed options of the engine.")


class VllmService(ServiceBase):
    """A service run by vLLM."""

    engine: Literal["vllm"] = Field(description="The engine.")
    options: VllmOptions = Field(default_factory=VllmOptions, description="Typed options of the engine.")


Service = SglangService | VllmService
SERVICES: dict[str, type[SglangService] | type[VllmService]] = {"sglang": SglangService, "vllm": VllmService}
assert set(SERVICES) == set(OPTIONS)


def venv_of(service: Service) -> str:
    """Folder of the engine's virtual environment."""
    return service.venv or f"/opt/servewright/engines/{service.engine}-{service.version}"


def user_of(service: Service) -> str:
    """System user that runs the service."""
    return service.user or f"llm-{service.name}"


__all__ = ["SERVICES", "Engine", "Service", "SglangService", "VllmService", "user_of", "venv_of"]
