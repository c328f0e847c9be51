"""Real vLLM and SGLang are asked for their command line before anything is stopped."""

from __future__ import annotations

from typing import Any

JSON = {"vllm": "compilation-config", "sglang": "json-model-override-args"}
BACKEND = {"vllm": "Unknown attention backend: 'FLASHY'", "sglang": "--attention-backend"}
TWO_NAMES = {
    "vllm": {"attention-config": {}, "-ac": {}},
    "sglang": {"dcp-size": 1, "decode-context-parallel-size": 1},
}
ABBREVIATED = {"vllm": "max-log-le", "sglang": "stream-interv"}


def test_a_real_parser_refuses_while_the_old_release_serves(tiny):
    running = tiny.invocation()
    models, flag = tiny.environments["models"], ABBREVIATED[tiny.engine]
    several = {"no-such-flag": "1", flag: "1", **TWO_NAMES[tiny.engine]}
    refused: list[tuple[dict[str, Any], list[str]]] = [
        (
            {"extra_args": several},
            ["has no flag --no-such-flag", f"--{flag} is an abbreviation of", "set the same option"],
        ),
        (
            {"extra_args": {JSON[tiny.engine]: "{mode: 3}"}, "model": tiny.model(path=str(models))},
            [f"--{JSON[tiny.engine]}", f"{models} has no config.json, so it is not a model"],
        ),
        ({"options": tiny.options(attention_backend="flashy")}, [BACKEND[tiny.engine]]),
        ({"model": tiny.model(path=f"{models}/tiny-qwen4")}, [f"there is no model folder {models}/tiny-qwen4"]),
    ]
    for changes, messages in refused:
        done, found = tiny.run("deploy", **changes)
        assert (done.code, [message for message in messages if message not in found["message"]]) == (3, []), done.text
        assert tiny.invocation() == running
    # A context that only the engine's own reading of the model refuses: ours stops at its config.json.
    _done, found = tiny.run("preflight", model=tiny.model(context_length=8192))
    assert "refuses this model with these arguments" in command_line(found)["message"]
    done, found = tiny.run("preflight")  # the answer to the right arguments is known since the first deploy
    assert (done.code, command_line(found)["evidence"]["cached"]) == (0, True), done.text
    assert tiny.verify()["verdict"] == "ok"


def command_line(found: dict[str, Any]) -> dict[str, Any]:
    (check,) = [check for check in found["checks"] if check["id"] == "command_line"]
    return dict(check)
