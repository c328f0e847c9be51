"""servewright nccl: what it prints and with which code, for inventories, files, units and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from servewright.cli import main
from servewright.cli.nccl import machine

HOSTS = """\
all:
  hosts: {gpu1: {}}
  vars:
    servewright_host: {gpus: 8, interconnect: pcie, compute_capability: "12.0"}
    servewright_nccl_profiles:
      - name: mine
        settings:
          NCCL_BUFFSIZE: {value: 16M, reason: as before}
    servewright_services:
      - name: kimi
        engine: sglang
        version: 0.5.23
        model: {path: /models/kimi, served_name: kimi}
        listen: {port: 30000}
        gpus: [0, 1, 2, 3]
        parallelism: {tensor: 4}
        nccl:
          profile: mine
          environment:
            NCCL_P2P_LEVEL: sys
      - name: pair
        engine: vllm
        version: 0.32.0
        model: {path: /models/pair, served_name: pair}
        listen: {port: 30001}
        gpus: [4, 5]
        parallelism: {tensor: 2}
        nccl:
          profile: pcie-ll-ring
        environment:
          SGLANG_SKIP_P2P_CHECK: "1"
"""
UNIT = """\
[Service]
EnvironmentFile=-{folder}/none
EnvironmentFile={folder}/env
Environment=NCCL_PROTO=LL NCCL_BUFFSIZE=16M HF_TOKEN=secret
ExecStart=/opt/venv/bin/vllm serve /models/sglang --tensor-parallel-size=2
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `servewright nccl ...` in a folder with inventory/hosts.yml, vllm.service and env."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/hosts.yml").write_text(HOSTS)
    (tmp_path / "vllm.service").write_text(UNIT.format(folder=tmp_path))
    (tmp_path / "env").write_text("# old\nNCCL_MIN_NCHANNELS=08\n")

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main.run(["nccl", *arguments])
        return (code, *capsys.readouterr())

    return call


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if part in line)


def test_a_finding_names_the_line_of_the_inventory_and_what_to_write(run: Run) -> None:
    code, out, _ = run("lint", "kimi")
    assert code == 3
    own, level = line_of(HOSTS, "NCCL_BUFFSIZE"), line_of(HOSTS, "NCCL_P2P_LEVEL")
    assert f"inventory/hosts.yml:{own}: error NCCL004 NCCL_BUFFSIZE: NCCL reads '16M' as 16" in out
    assert "-> write NCCL_BUFFSIZE=16777216\n" in out
    assert f"inventory/hosts.yml:{level}: error NCCL008 NCCL_P2P_LEVEL: " in out
    assert out.endswith("\n2 errors, 0 warnings, 0 info\n")
    assert "NCCL113" not in out


def test_a_built_in_profile_is_judged_where_it_is_named_and_the_engine_by_its_flags(run: Run) -> None:
    code, out, _ = run("lint", "pair", "--json")
    rows = {(row["id"], row["variable"]): row for row in json.loads(out)["findings"]}
    assert code == 3
    assert rows["NCCL102", "NCCL_BUFFSIZE"]["line"] == line_of(HOSTS, "profile: pcie-ll-ring")
    assert rows["NCCL113", None]["line"] == line_of(HOSTS, "name: pair")
    assert rows["NCCL017", "SGLANG_SKIP_P2P_CHECK"]["line"] == line_of(HOSTS, "SGLANG_SKIP")
    assert {row["service"] for row in rows.values()} == {"pair"}


def test_without_an_error_the_code_is_0(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "inventory/hosts.yml"
    path.write_text(HOSTS.replace("tensor: 2}", "tensor: 2}\n        options: {disable_custom_all_reduce: true}"))
    code, out, _ = run("lint", "pair")
    assert (code, out.splitlines()[-1][:8]) == (0, "0 errors")
    assert "warning NCCL102" in out
    assert run("explain", "pair")[0] == 0


def test_facts_that_are_given_win(run: Run) -> None:
    assert "NCCL113" in run("lint", "pair")[1]
    assert "NCCL113" not in run("lint", "pair", "--compute-capability", "9.0")[1]
    assert "NCCL113" in run("lint", "kimi", "--tensor-parallel", "2")[1]
    arguments = ("lint", "--environment-file", "env")
    Path("env").write_text("NCCL_RAS_ENABLE=1\nNCCL_NVLS_ENABLE=1\nVLLM_SKIP_P2P_CHECK=1\n")
    assert run(*arguments)[0] == 0
    assert "error NCCL002 NCCL_RAS_ENABLE" in run(*arguments, "--nccl-version", "2.23.4")[1]
    assert "error NCCL117 NCCL_NVLS_ENABLE" in run(*arguments, "--interconnect", "pcie")[1]
    assert "info NCCL017 VLLM_SKIP_P2P_CHECK" in run(*arguments, "--engine", "sglang")[1]


def test_a_unit_is_read_with_its_environment_files_and_its_command(run: Run) -> None:
    code, out, error = run("lint", "--unit", "./vllm.service", "--compute-capability", "12.0")
    assert (code, error) == (3, "")
    assert "vllm.service:4: error NCCL004 NCCL_BUFFSIZE: " in out
    assert "\nenv:2: error NCCL004 NCCL_MIN_NCHANNELS: " in out
    assert "vllm.service: error NCCL113: With tensor parallel 2" in out
    assert "secret" not in out


def test_a_unit_is_found_by_name_with_its_drop_ins(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc, usr = tmp_path / "etc", tmp_path / "usr"
    for folder in (etc / "engine.service.d", usr / "engine.service.d"):
        folder.mkdir(parents=True)
    (usr / "engine.service").write_text("[Service]\nEnvironment=NCCL_PROTO=LL128x\nEnvironment=NCCL_ALGO=Rong\n")
    (usr / "engine.service.d/10.conf").write_text("[Service]\nEnvironment=NCCL_PROTO=hidden\n")
    (etc / "engine.service.d/10.conf").write_text("[Service]\n\nEnvironment=NCCL_PROTO=Simpel\n")
    monkeypatch.setattr(machine, "UNIT_FOLDERS", (etc, usr))
    code, out, _ = run("lint", "--unit", "engine")
    assert code == 3
    assert "etc/engine.service.d/10.conf:3: error NCCL010 NCCL_PROTO: NCCL does not know 'Simpel'" in out
    assert "usr/engine.service:3: error NCCL010 NCCL_ALGO: " in out
    assert "LL128x" not in out
    assert "hidden" not in out
    code, _, error = run("lint", "--unit", "nosuch")
    assert (code, "no such unit" in error) == (1, True)


def test_what_could_not_be_read_is_said_and_never_passes_for_clean(run: Run) -> None:
    Path("vllm.service").write_text("[Service]\nEnvironmentFile=/nosuch/env\nEnvironment=NCCL_ALGO=Ring\n")
    code, out, error = run("lint", "--unit", "./vllm.service")
    assert (code, out) == (1, "clean\n")
    assert error == "warning: cannot read /nosuch/env; what it sets is not judged\n"


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("/opt/venv/bin/vllm serve /models/x", True),
        ("/usr/bin/env python3 -u -m vllm.entrypoints.openai.api_server --model /models/x", True),
        ("/opt/run.sh /models/vllm", False),
        ("", False),
    ],
)
def test_rules_about_flags_need_a_command_that_is_an_engines(run: Run, command: str, engine: bool) -> None:
    Path("vllm.service").write_text(f"[Service]\nExecStart={command} -tp 2\n")
    arguments = ("--compute-capability", "12.0", "--tensor-parallel", "2")
    assert ("NCCL113" in run("lint", "--unit", "./vllm.service", *arguments)[1]) == engine


def test_a_settings_file_is_read_as_nccl_reads_it(run: Run) -> None:
    Path("nccl.conf").write_text("# comment\nNCCL_PROTO = LL\n")
    code, out, _ = run("lint", "--conf", "nccl.conf")
    assert code == 3
    assert out.startswith("nccl.conf:2: error NCCL014 NCCL_PROTO : ")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    environment = {"PATH": os.environ["PATH"], "NCCL_BUFFSIZE": "16M", "NCCL_CONF_FILE": f"{Path.cwd()}/none"}
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], env=environment, stdin=-1, stdout=-1)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.communicate()


def test_a_process_is_judged_by_the_environment_it_was_started_with(run: Run, process: subprocess.Popen[bytes]) -> None:
    code, out, _ = run("lint", "--pid", str(process.pid))
    assert code == 3
    assert f"/proc/{process.pid}/environ: error NCCL004 NCCL_BUFFSIZE" in out
    code, _, error = run("lint", "--pid", "99999999")
    assert (code, error) == (1, "error: cannot read /proc/99999999/environ: No such file or directory\n")


def test_settings_files_of_a_process_are_those_below_its_own_root(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    (folder / "root/etc").mkdir(parents=True)
    (folder / "root/my.conf").write_text("NCCL_ALGO=Tree\nNCCL_PROTO=LL\n")
    (folder / "root/etc/nccl.conf").write_text("NCCL_ALGO=Ring\nNCCL_DEBUG=INFO\n")
    (folder / "environ").write_bytes(b"NCCL_PROTO=Simple\0NCCL_CONF_FILE=/my.conf\0")
    (folder / "cmdline").write_bytes(b"python3\0-m\0sglang.launch_server\0--model-path\0/models/vllm\0--tp\0004\0")
    source = machine.process(7, None, tmp_path)
    values = {entry.name: entry.value for entry in source.entries}
    assert values == {
        "NCCL_PROTO": "Simple",
        "NCCL_CONF_FILE": "/my.conf",
        "NCCL_ALGO": "Tree",
        "NCCL_DEBUG": "INFO",
    }
    assert (source.facts["engine"], source.facts["tensor_parallel"], source.unread) == ("sglang", 4, [])


def test_sarif_places_every_result(run: Run) -> None:
    code, out, _ = run("lint", "--sarif")
    (sarif,) = json.loads(out)["runs"]
    assert code == 3
    for result in sarif["results"]:
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "inventory/hosts.yml"
        assert place["physicalLocation"]["region"]["startLine"] > 0


WRONG: list[tuple[list[str], int, str]] = [
    (["lint", "nosuch"], 1, "no service 'nosuch'; declared: kimi, pair"),
    (["lint", "-i", "nosuch"], 1, "no inventory at nosuch"),
    (["lint", "-i", "gpu1,"], 1, "declares nothing"),
    (["lint", "-i", "template.yml"], 1, "template.yml:2 holds a template, which only Ansible can resolve"),
    (["lint", "-i", "empty.yml"], 1, "does not define servewright_services"),
    (["lint", "-i", "invalid.yml"], 3, "invalid.yml:2: servewright_services[0].engine: unknown engine 'sglong'"),
    (["lint", "--conf", "nosuch"], 1, "cannot read nosuch: No such file or directory"),
    (["lint", "--conf", "env", "--pid", "1"], 1, "give one of"),
    (["lint", "kimi", "--conf", "env"], 1, "instead of an inventory"),
    (["lint", "--nccl-version", "new"], 1, "'new' is not an NCCL version"),
    (["lint", "--compute-capability", "12"], 1, "write it as 12.0"),
    (["lint", "--interconnect", "wifi"], 1, "'pcie', 'nvlink'"),
    (["explain", "nosuch"], 1, "no service 'nosuch'"),
    (["import", "nosuch", "--name", "x"], 1, "no such unit"),
    (["import", "empty.yml", "--name", "x"], 1, "empty.yml sets no NCCL variable"),
    (["import", "empty.yml", "--name", "x"], 1, "import a copy of the running engine's /proc/PID/environ"),
    (["import", "env", "--name", "X_"], 1, "--name: 'X_' is no name of a profile: lower case letters, digits and '-'"),
    (["lint", "--unit", "./broken.service"], 1, "broken.service has no section [Service]"),
    (["lint", "--environment-file", "latin1"], 1, "latin1 is not UTF-8, so systemd does not read it"),
    (["lint", "--environment-file", "bytes"], 1, "bytes is neither an environment file nor the environment of a"),
    (["import", "bytes", "--name", "x"], 1, "bytes is neither an environment file nor the environment of a process"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), WRONG, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("as_json", [False, True])
def test_bad_input_is_one_line_and_a_code(
    run: Run, arguments: list[str], code: int, message: str, as_json: bool
) -> None:
    Path("broken.service").write_text("[Service\nEnvironment=NCCL_PROTO=LL\n")
    Path("latin1").write_bytes(b"NCCL_PROTO=\xe9\n")
    Path("bytes").write_bytes(bytes(range(256)) * 10)
    Path("empty.yml").write_text("{}\n")
    Path("template.yml").write_text("servewright_services:\n  - name: '{{ x }}'\n")
    Path("invalid.yml").write_text("servewright_services:\n  - {name: a, engine: sglong}\n")
    found, out, error = run(*arguments, *(["--json"] if as_json else []))
    assert found == code
    if as_json and "wifi" not in arguments:  # what the parser of options says is text
        document = json.loads(out)
        assert document["exit_code"] == code
        assert error == ""
        problems = ("{file}:{line}: {path}: {message}".format(**one) for one in document["problems"])
        error = document["error"] + "".join(problems)
    else:
        assert out == ""
    assert message in error
    assert "Traceback" not in error


def test_explain_tells_origin_reason_meaning_and_effect(run: Run) -> None:
    code, out, _ = run("explain")
    assert code == 0
    kimi, pair = out.split("\npair  ")
    line = line_of(HOSTS, "NCCL_BUFFSIZE")
    assert f"  NCCL_BUFFSIZE=16M\n    from      profile mine v1 (inventory/hosts.yml:{line})\n" in kimi
    assert "    why       as before\n" in kimi
    assert f"from      inventory (inventory/hosts.yml:{line_of(HOSTS, 'NCCL_P2P_LEVEL')})" in kimi
    assert "    effect    none: NCCL tells upper from lower case" in kimi
    assert "NCCL_NTHREADS=512" in pair
    assert "    effect    none: 512 threads are NCCL's own value" in pair


def test_explain_as_json(run: Run) -> None:
    (service,) = json.loads(run("explain", "pair", "--json")[1])["services"]
    rows = {row["variable"]: row for row in service["settings"]}
    assert (service["service"], service["profile"]) == ("pair", "pcie-ll-ring")
    assert (rows["NCCL_PROTO"]["effect"], rows["NCCL_NTHREADS"]["effect"]) == (True, False)
    assert rows["NCCL_NTHREADS"]["line"] == line_of(HOSTS, "profile: pcie-ll-ring")
    assert rows["NCCL_BUFFSIZE"]["why_not"]


def test_the_environment_of_a_process_is_imported_from_a_copy(run: Run) -> None:
    Path("copy").write_bytes(b"PATH=/bin\0NCCL_PROTO=LL\0NCCL_DEBUG_FILE=/tmp/a\nb\0")
    (profile,) = yaml.safe_load(run("import", "copy", "--name", "old")[1])["servewright_nccl_profiles"]
    assert {name: setting["value"] for name, setting in profile["settings"].items()} == {
        "NCCL_PROTO": "LL",
        "NCCL_DEBUG_FILE": "/tmp/a\nb",
    }


def test_one_form_of_output_at_a_time(run: Run) -> None:
    code, out, _ = run("lint", "--json", "--sarif")
    assert (code, json.loads(out)["error"]) == (1, "give one of --json and --sarif")


def test_an_import_is_a_document_for_programs(run: Run) -> None:
    code, out, error = run("import", "./vllm.service", "--name", "old", "--json")
    found = json.loads(out)
    (profile,) = found["servewright_nccl_profiles"]
    assert (code, error, found["unread"]) == (0, "", [])
    assert profile["settings"]["NCCL_BUFFSIZE"]["value"] == "16M"


def test_an_imported_unit_is_a_profile_that_can_be_declared(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("import", "./vllm.service", "--name", "old")
    assert code == 0
    (profile,) = yaml.safe_load(out)["servewright_nccl_profiles"]
    assert {name: setting["value"] for name, setting in profile["settings"].items()} == {
        "NCCL_PROTO": "LL",
        "NCCL_BUFFSIZE": "16M",
        "NCCL_MIN_NCHANNELS": "08",
    }
    assert profile["settings"]["NCCL_MIN_NCHANNELS"]["reason"] == f"taken from {tmp_path}/env:2"
    declared: dict[str, Any] = yaml.safe_load(HOSTS)
    declared["all"]["vars"]["servewright_nccl_profiles"] = [profile]
    declared["all"]["vars"]["servewright_services"][0]["nccl"] = {"profile": "old"}
    (tmp_path / "inventory/hosts.yml").write_text(yaml.safe_dump(declared))
    assert "error NCCL004 NCCL_MIN_NCHANNELS" in run("lint", "kimi")[1]
    assert list(yaml.safe_load(run("import", "env", "--name", "e")[1])["servewright_nccl_profiles"][0]["settings"]) == [
        "NCCL_MIN_NCHANNELS"
    ]


def test_profiles_lists_built_in_and_own_ones_with_reasons(run: Run) -> None:
    code, out, _ = run("profiles")
    assert code == 0
    assert "pcie-ll-ring  v1, built in\n" in out
    assert "    topology  pcie\n    measured  no: " in out
    assert "mine  v1, inventory\n" in out
    assert "    NCCL_BUFFSIZE=16M\n              as before\n" in out
    rows = {row["name"]: row for row in json.loads(run("profiles", "--json")[1])["profiles"]}
    assert rows["mine"]["origin"] == "inventory"
    assert rows["nvlink-default"]["settings"] == {}
    assert rows["nvlink-default"]["measured"]["status"] == "yes"
    Path("inventory/hosts.yml").unlink()
    assert "mine" not in run("profiles")[1]


def test_two_profile_files_keep_their_lines(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "inventory/a.yml"
    path.write_text(
        "\n\nservewright_nccl_profiles:\n  - {name: first, settings: {NCCL_ALGO: {value: Ring, reason: r}}}\n"
    )
    assert f"hosts.yml:{line_of(HOSTS, 'NCCL_BUFFSIZE')}: error NCCL004" in run("lint", "kimi")[1]


def test_validate_refuses_what_no_nccl_would_take(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["validate"]) == 3
    out = capsys.readouterr().out
    assert f"hosts.yml:{line_of(HOSTS, 'NCCL_BUFFSIZE')}  INVALID" in out
    assert f"hosts.yml:{line_of(HOSTS, 'NCCL_P2P_LEVEL')}  INVALID" in out
    assert f"hosts.yml:{line_of(HOSTS, 'name: pair')}  INVALID" in out
    assert "NCCL004: NCCL_BUFFSIZE=16M: NCCL reads '16M' as 16" in out
    assert "write NCCL_BUFFSIZE=16777216" in out


def test_validate_leaves_to_the_host_what_depends_on_the_version_of_nccl(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = HOSTS.replace("16M", '"16777216"').replace("sys", "SYS").replace("tensor: 2}", "tensor: 1}")
    text = text.replace("gpus: [4, 5]", "gpus: [4]").replace("NCCL_P2P_LEVEL: SYS", 'NCCL_RAS_ENABLE: "1"')
    (tmp_path / "inventory/hosts.yml").write_text(text)  # the variable came with NCCL 2.24
    assert main.run(["validate"]) == 0, capsys.readouterr().out
    assert run("lint", "kimi", "--nccl-version", "2.23.4")[0] == 3
