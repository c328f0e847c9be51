"""Bad declarations: each names its place, the offending value and the right one, and all are shown at once."""

from __future__ import annotations

import copy
import datetime
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servewright.nccl.profiles import Profile
from servewright.spec import validate
from servewright.spec.host import Host
from servewright.spec.problems import UNREADABLE, InvalidError, Problem
from tests.unit.spec.samples import service


def problems(data, **more) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        validate.services(data, **more)
    return [str(problem).removeprefix("servewright_services") for problem in caught.value.problems]


def test_a_valid_service_is_taken():
    (found,) = validate.services([service()])
    assert found.name == "tiny"
    assert found.listen.host == "127.0.0.1"


CASES = [
    (service(enigne="x"), "[0].enigne: unknown key 'enigne' (did you mean 'engine'?)"),
    (service(engine="vlm"), "[0].engine: unknown engine 'vlm' (did you mean 'vllm'?)"),
    (service(version=0.5), '[0].version: 0.5 is not text (write it in quotes: "0.5")'),
    (
        service(listen={"port": "30000"}),
        "[0].listen.port: '30000' is text, not a whole number (write it without quotes)",
    ),
    (service(listen={"port": 70000}), "[0].listen.port: 70000 should be less than or equal to 65535"),
    (service(listen={}), "[0].listen.port: is missing"),
    (service(name="Tiny"), "[0].name: 'Tiny' does not match ^[a-z][a-z0-9-]{0,26}$ (Name of the service and of its "),
    (service(gpus="0,1"), "[0].gpus: '0,1' is text, not a list (The claim: indices (PCI bus order) of the GPUs"),
    (service(gpus=["0-7"]), "[0].gpus[0]: '0-7' is text, not a whole number (The claim: indices"),
    (service(verify={"load_timeout": "30m"}), "'30m' is text, not a number (Upper bound in seconds"),
    (service(verify={"prompts": "Hi"}), "'Hi' is text, not a list (each item is a mapping with the keys prompt, "),
    (service(model="Kimi"), "[0].model: 'Kimi' is text, not a mapping (a mapping with the keys path, served_name, "),
    (service(model=None), "[0].model: is empty, not a mapping (a mapping with the keys path, served_name, "),
    (service(port=30000), "[0].port: unknown key 'port' (did you mean 'listen.port'?)"),
    (service(options={"max_num_seqs": 8}), "unknown key 'max_num_seqs' ('max_num_seqs' is an option of vllm; known: "),
    (service(secrets={"A": "CANARY"}), "[0].secrets.A: what stands here is text, not a mapping (a mapping with the "),
    (service(model={"path": "models/x", "served_name": "x"}), "[0].model.path: 'models/x' must be an absolute path"),
    (
        service(options={"attention_backnd": "x"}),
        "[0].options.attention_backnd: unknown key 'attention_backnd' (did you",
    ),
    (service(extra_args={"port": 3}), "[0].extra_args.port: --port is set by servewright (declare listen.port)"),
    (service(extra_args={"--tp": 3}), "[0].extra_args.--tp: --tp is set by servewright (declare parallelism.tensor)"),
    (
        service(extra_args={"kv-cache-dtype": "auto"}),
        "--kv-cache-dtype is a typed option (declare options.kv_cache_dtype)",
    ),
    (service(extra_args={"api-key": "CANARY"}), "[0].extra_args.api-key: --api-key would put a secret on the command"),
    (service(extra_args={"api_key": "CANARY"}), "[0].extra_args.api_key: --api-key would put a secret on the command"),
    (service(extra_args={"--model_path": "/x"}), "--model-path is set by servewright (declare model.path)"),
    (
        service(engine="vllm", extra_args={"--max_model_len": 77}),
        "--max-model-len is set by servewright (declare model.context_length)",
    ),
    (
        service(extra_args={"foo_bar": 1, "--foo-bar": 2}),
        "[0].extra_args.--foo-bar: --foo-bar is also given as 'foo_bar' (leave one of them out)",
    ),
    (service(extra_args={"a": "b\0"}), "[0].extra_args.a: 'b\\x00' must not contain a NUL byte"),
    (service(extra_args={"a": [{"b\0": 1}]}), "must not contain a NUL byte"),
    (service(extra_args={"a": [math.inf]}), "[0].extra_args.a[0]: inf should be a finite number"),
    (service(extra_args={"a": {"b": [0, math.nan]}}), "[0].extra_args.a.b[1]: nan should be a finite number"),
    (
        service(engine="vllm", options={"speculative_config": {"model": "a\0"}}),
        "[0].options.speculative_config.model: 'a\\x00' must not contain a NUL byte",
    ),
    (service(listen={"host": "not a host!", "port": 1}), "'not a host!' must be an IP address or the name of a host"),
    (service(listen={"host": "--help", "port": 1}), "'--help' must be an IP address or the name of a host"),
    (service(listen={"host": "a\n", "port": 1}), "must be an IP address or the name of a host"),
    (service(limits={"stop_timeout": math.inf}), "[0].limits.stop_timeout: inf should be a finite number"),
    (service(limits={"stop_timeout": 1e-7}), "1e-07 should be greater than or equal to 0.001"),
    (service(verify={"load_timeout": 1e9}), "[0].verify.load_timeout: 1000000000.0 should be less than or equal to"),
    (service(watch={"every": math.inf}), "[0].watch.every: inf should be a finite number"),
    (service(limits={"open_files": 10**26}), "should be less than or equal to 2147483584"),
    (service(limits={"restart_burst": 10**26}), "should be less than or equal to 1000"),
    (service(gpus=[10**26]), "[0].gpus[0]: 100000000000000000000000000 should be less than or equal to 255"),
    (service(extra_args={"a b": 1}), "[0].extra_args.a b: 'a b' is not the name of a flag"),
    (service(environment={"NCCL_ALGO": "Ring"}), "NCCL_ALGO is an NCCL setting (declare it under nccl.environment)"),
    (service(environment={"HF_TOKEN": "CANARY"}), "[0].environment.HF_TOKEN: HF_TOKEN looks like a secret"),
    (service(environment={"CUDA_VISIBLE_DEVICES": "0"}), "CUDA_VISIBLE_DEVICES comes from 'gpus' (leave it out)"),
    (service(environment={"A": 1}), '[0].environment.A: 1 is not text (write it in quotes: "1")'),
    (service(environment={"A": "\x01"}), "must not contain the control character"),
    (
        service(engine="vllm", environment={"VLLM_MODEL": "x"}),
        "VLLM_MODEL does not do what it says (not a setting of vLLM",
    ),
    (service(nccl={"environment": {"CUDA_X": "1"}}), "CUDA_X is not an NCCL variable (declare it under 'environment')"),
    (service(nccl={"profile": "pcie-ll-rong"}), "unknown NCCL profile 'pcie-ll-rong' (did you mean 'pcie-ll-ring'?)"),
    (
        service(gpus=[0, 1], parallelism={"tensor": 4}),
        "needs 4 GPUs, but 2 are claimed (claim 4 GPUs or set tensor to 2)",
    ),
    (service(gpus=[0, 0], parallelism={"tensor": 2}), "[0].gpus: [0, 0] names a GPU twice"),
    (service(shared_memory="private"), "[0].shared_memory: a private /dev/shm needs a size"),
    (service(shared_memory_size="64G"), "[0].shared_memory_size: the host's own /dev/shm has its own size"),
    (service(shared_memory="private", shared_memory_size="64GB"), "[0].shared_memory_size: "),
    (service(limits={"gpu_wait": 400}), "[0].limits.gpu_wait: 400 s is not below start_timeout (300 s)"),
    (service(verify={"stall_timeout": 2000}), "[0].verify.stall_timeout: 2000 s is above load_timeout (1800 s)"),
    (
        service(verify={"prompts": [{"prompt": "a", "expect": "("}]}),
        "prompts[0].expect: '(' is not a regular expression",
    ),
    (service(watch={"every": 1}), "[0].watch.every: 1 should be greater than or equal to 5"),
    (service(extra_args={"ssl-keyfile": "/k"}), "[0].extra_args.ssl-keyfile: --ssl-keyfile hides the server from its"),
    (service(engine="vllm", extra_args={"uds": "/run/v"}), "[0].extra_args.uds: --uds hides the server from its gates"),
    (service(extra_args={"config": "/c.yml"}), "[0].extra_args.config: --config hides the server from its gates"),
    (
        service(verify={"prompts": [{"prompt": "Rain in Paris?", "expect": "Paris", "mode": "tool"}]}),
        "[0].verify.prompts[0].mode: sglang calls no tool without options.tool_call_parser",
    ),
    (
        service(
            engine="vllm",
            options={"tool_call_parser": "kimi_k2"},
            verify={"prompts": [{"prompt": "Rain in Paris?", "expect": "Paris", "mode": "tool"}]},
        ),
        "vllm calls no tool without options.enable_auto_tool_choice and options.tool_call_parser",
    ),
    (
        service(watch={}, options={"enable_metrics": False}),
        "[0].watch: options.enable_metrics: false takes away the counters",
    ),
    (
        service(watch={}, engine="vllm", extra_args={"disable_log_stats": True}),
        "[0].watch: --disable-log-stats takes away the counters",
    ),
    (
        service(options={"nccl_port": 30000}),
        "[0].options.nccl_port: 30000 (NCCL) is also the HTTP port of this service (declare another port for one",
    ),
    (
        service(options={"nccl_port": 30235}, extra_args={"enable-dp-attention": True}),
        "[0].options.nccl_port: 30235 (data parallel attention) is also the NCCL port of this service",
    ),
    (
        service(engine="vllm", extra_args={"nnodes": 2, "--master-port": 30000}),
        "[0].extra_args.--master-port: 30000 (rendezvous) is also the HTTP port of this service",
    ),
    (service(user="root"), "[0].user: an engine must not run as root"),
    (service(secrets={"A": {}}), "exactly one of 'variable', 'env' and 'file' must be given"),
    ("tiny", "[0]: must be a mapping, not text"),
]


@pytest.mark.failure("6.6")
@pytest.mark.parametrize(("data", "message"), CASES, ids=[message[:60] for _data, message in CASES])
def test_a_bad_service_is_refused(data, message):
    with pytest.raises(InvalidError) as caught:
        validate.services([data])
    (found,) = caught.value.problems
    assert message in str(found)
    assert "CANARY" not in json.dumps(found.as_dict())


FREE = {"name": "b", "listen": {"port": 1}}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "fe80::1%eth0", "::ffff:10.0.0.1", "gpu1", "gpu-1.example.com"])
def test_addresses_and_names_of_hosts_are_taken(host):
    assert validate.services([service(listen={"host": host, "port": 1})])


PAIRS = [
    ({}, {"name": "b"}, "[1].listen.port: 30000 is also the HTTP port of service 'tiny'"),
    ({}, {"name": "b", "listen": {"host": "0.0.0.0", "port": 30000}}, "30000 is also the HTTP port of service 'tiny'"),
    (
        {},
        {"name": "b", "listen": {"host": "127.0.0.2", "port": 30000}},
        "30000 is also the HTTP port of service 'tiny'",
    ),
    (
        {},
        {"name": "b", "listen": {"host": "localhost", "port": 30000}},
        "30000 is also the HTTP port of service 'tiny'",
    ),
    ({}, FREE | {"options": {"nccl_port": 30000}}, "[1].options.nccl_port: 30000 (NCCL) is also the HTTP port of"),
    ({"options": {"nccl_port": 1}}, FREE, "[1].listen.port: 1 is also the NCCL port of service 'tiny'"),
    (
        {"extra_args": {"dist-init-addr": "127.0.0.1:1"}},
        FREE | {"listen": {"port": 2}, "extra_args": {"dist-init-addr": "0.0.0.0:1"}},
        "[1].extra_args.dist-init-addr: 1 (rendezvous) is also the rendezvous port of service 'tiny'",
    ),
    (
        {"extra_args": {"enable_dp_attention": True}},
        FREE | {"listen": {"port": 30233}},
        "[1].listen.port: 30233 is also the data parallel attention port of service 'tiny'",
    ),
    (
        {"extra_args": {"enable_dp_attention": True}},
        FREE | {"listen": {"port": 30001}, "extra_args": {"enable_dp_attention": True}},
        "[1].listen.port: 30234 (data parallel attention) is also the data parallel attention port of",
    ),
    ({}, {"listen": {"port": 1}}, "[1].name: 'tiny' is also the name of servewright_services[0]"),
    ({}, FREE | {"gpus": [1, 0], "parallelism": {"tensor": 2}}, "[1].gpus: GPU 0, 1 is also claimed by service 'tiny'"),
]


@pytest.mark.parametrize(("first", "second", "message"), PAIRS, ids=[message for *_, message in PAIRS])
def test_two_services_that_exclude_each_other_are_refused(first, second, message):
    (found,) = problems([service(gpus=[0, 1], parallelism={"tensor": 2}, **first), service(**second)])
    assert message in found


def test_a_claim_is_held_against_the_host():
    (found,) = problems([service(gpus=[8])], host=Host(gpus=8))
    assert found == "[0].gpus[0]: there is no GPU 8: the host declares 8 (0 to 7)"


def test_a_profile_of_the_inventory_is_known():
    own = Profile.model_validate({"name": "mine", "settings": {"NCCL_ALGO": {"value": "Ring", "reason": "measured"}}})
    assert validate.services([service(nccl={"profile": "mine"})], profiles=[own])


def test_all_problems_are_shown_at_once():
    data = [service(enigne=1, listen={"port": "x"}, options={"foo": 1}), service(engine="vlm", nme="b")]
    assert len(problems(data)) == 6


WIDE = {"gpus": [0, 1], "parallelism": {"tensor": 4}}
SPREAD = "[0].parallelism: tensor 4 x pipeline 1 x data 1 needs 4 GPUs"
CLAIMED = "[1].gpus: GPU 0, 1 is also claimed by service"


@pytest.mark.parametrize(
    "fault",
    [
        {"foo": 1},
        {"name": "Tiny"},
        {"version": 5},
        {"model": None},
        {"model": {"path": "/models/tiny"}},
        {"model": {"path": "tiny", "served_name": 5}},
        {"listen": {}},
        {"listen": {"port": "x"}, "port": 3},
        {"listen": 5, "port": 3},
        {"watch": None, "every": 5},
        {"options": {"foo": 1}},
        {"limits": {"stop_timeout": 0}},
        {"watch": {"evry": 5}},
        {"verify": {"prompts": [{"prompt": "a"}]}},
        {"secrets": {"A": {"value": 1}}},
        {"engine": "sgland"},
        {"engine": ["sglang"]},
        {"environment": {"A": 1}},
    ],
    ids=str,
)
def test_a_faulty_key_does_not_hide_what_is_wrong_elsewhere(fault):
    found = problems(
        [service(**WIDE, **fault), service(name="b", listen={"port": 1}, **WIDE | {"parallelism": {"tensor": 2}})]
    )
    assert any(problem.startswith(SPREAD) for problem in found)
    assert any(problem.startswith(CLAIMED) for problem in found)


def test_a_faulty_option_does_not_hide_a_port_that_is_taken():
    found = problems([service(options={"mem_fraction_static": "x"}), service(name="b", environment={"A": 1})])
    assert any("30000 is also the HTTP port of service 'tiny'" in problem for problem in found)


@pytest.mark.parametrize(
    "fault",
    [
        {"parallelism": {"tensor": "2"}},
        {"parallelism": {"tensr": 2}},
        {"paralelism": {"tensor": 2}},
        {"tensor": 2},
        {"parallelism": UNREADABLE, "foo": 1},
        {"parallelism": {"data": 2}, "extra_args": {"enable_dp_attention": object()}},
    ],
)
def test_nothing_is_concluded_from_a_key_that_is_faulty_itself(fault):
    (found,) = problems([service(gpus=[0, 1], **fault)])
    assert "needs" not in found


JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just(UNREADABLE)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=5), inner, max_size=2)),
    max_leaves=4,
)
KEYS = [path for model in validate.SERVICES.values() for path in validate._paths(model)]


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([0, 1]), JUNK), min_size=1, max_size=3))
def test_whatever_is_declared_is_taken_or_refused_with_a_reason(faults):
    """Each fault puts junk at a key, or under the same name one level higher."""
    data = service(**WIDE)
    for path, cut, value in faults:
        inside = data
        for part in path[: max(0, len(path) - 1 - cut)]:
            inside[part] = inside[part] if isinstance(inside.get(part), dict) else {}
            inside = inside[part]
        inside[path[-1]] = value
    before = copy.deepcopy(data)
    try:
        validate.services([data, service(name="b", listen={"port": 1})])
    except InvalidError as error:
        json.dumps([problem.as_dict() for problem in error.problems], allow_nan=False)
    assert str(data) == str(before)


def test_a_profile_is_not_called_unknown_where_profiles_are_not_known():
    assert validate.services([service(nccl={"profile": "mine"})], profiles=None)


@pytest.mark.parametrize("engine", ["sgland", "vlm"])
def test_options_are_checked_against_the_engine_that_was_meant(engine):
    assert any(
        "options.attention_backnd: unknown key" in one
        for one in problems([service(engine=engine, options={"attention_backnd": "x"})])
    )


@pytest.mark.parametrize("data", [5, {"a": 1}, "x"])
def test_profiles_that_are_no_list_are_refused(data):
    with pytest.raises(InvalidError, match=r"x\.yml:3: servewright_nccl_profiles: must be a list of profiles, not"):
        validate.all_profiles([(data, {("servewright_nccl_profiles",): ("x.yml", 3)})])


SECRETS = [
    {"secrets": [{"name": "HF_TOKEN", "value": "CANARY"}]},
    {"secrets": {"HF_TOKEN": {"value": "CANARY"}}},
    {"secrets": {"HF_TOKEN": {"variable": ["CANARY"]}}},
    {"secrets": "CANARY"},
    {"secret": {"HF_TOKEN": "CANARY"}},
    {"sercets": {"HF_TOKEN": "CANARY"}},
    {"hf_token": "CANARY"},
    {"environment": {"HF_TOKEN": ["CANARY"]}},
    {"model": {"path": "/m", "served_name": "m", "secrets": ["CANARY"]}},
    {"engine": {"secrets": "CANARY"}},
    {"gpus": {"secrets": "CANARY"}},
]


@pytest.mark.parametrize("fault", SECRETS, ids=str)
def test_a_secret_in_the_wrong_place_is_not_shown(fault):
    for data in ([service(**fault)], service(**fault), [[service(**fault)]]):
        with pytest.raises(InvalidError) as caught:
            validate.services(data)
        assert "CANARY" not in str(caught.value)
        assert "CANARY" not in json.dumps([problem.as_dict() for problem in caught.value.problems])


def test_what_is_no_secret_is_shown():
    found = service(user="U", gpus=["G"], model={"path": "P", "served_name": 5}, verify={"request_timeout": "R"})
    with pytest.raises(InvalidError) as caught:
        validate.services([found])
    assert {problem.value for problem in caught.value.problems} == {"U", "G", "P", 5, "R"}


def test_values_that_json_does_not_have_are_shown_as_text():
    shown = Problem((), "", [math.inf, datetime.date(2024, 1, 2)]).as_dict()["value"]
    assert shown == ["Infinity", "datetime.date(2024, 1, 2)"]
    assert len(Problem((), "", ["x"] * 1000).as_dict()["value"]) == 1000


def test_attention_data_parallelism_needs_no_further_gpu():
    spread = service(gpus=[0, 1], parallelism={"tensor": 2, "data": 2}, extra_args={"enable_dp_attention": True})
    assert validate.services([spread])


@pytest.mark.failure("5.1")
def test_5_1_speculation_in_sglang_needs_a_declared_request_limit():
    """SGLang falls to 48 requests without a word."""
    drafting = service(extra_args={"speculative-algorithm": "EAGLE3"})
    (problem,) = problems([drafting])
    assert problem.startswith("[0].options.max_running_requests: is missing, and with speculation SGLang then runs 48")
    assert validate.services([{**drafting, "options": {"max_running_requests": 128}}])
