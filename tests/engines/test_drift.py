"""Drift of a real engine: nothing is found while it serves, and what its processes really run is told."""

from __future__ import annotations

from tests.engines.tiny import ENVIRONMENT, service
from tests.hosts.commands import Library, invocation, servewright
from tests.hosts.mutations import limited, replaced

UNIT = "/etc/systemd/system/tiny.service"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnuma.so.1.0.0"
# The host sees engine and models read-only: what is changed there lies above them, and is gone with the host.
ABOVE = (
    "mkdir -p {top} && mount -t tmpfs none {top} && mkdir {top}/upper {top}/work &&"
    " mount -t overlay none -o lowerdir={path},upperdir={top}/upper,workdir={top}/work {path}"
)
# Somebody starts it from another unit, and puts the unit back.
OTHERWISE = {
    "s/--served-model-name tiny/& --seed 7/": ("process.argv", "only running: --seed 7"),
    "s/MARK=1/MARK=2/": ("process.environment", "environment.MARK: declared 1, running 2"),
    "s/NCCL_PROTO=LL/NCCL_PROTO=Simple/": ("process.environment", "NCCL_PROTO: declared LL, running Simple"),
    "s/^User=.*/User=other/": ("process.user", "declared llm-tiny"),
    "s/^LimitNOFILE=.*/LimitNOFILE=4096/": ("process.limits", "running 4096"),
}


def test_what_a_real_process_runs_is_compared(real_host, inventory, environments):
    host = real_host
    declared = service("vllm", environments, environment={**ENVIRONMENT["vllm"], "MARK": "1"})
    model, packages = declared["model"]["path"], f"{declared['venv']}/lib/python3*/site-packages"
    for number, path in enumerate((declared["venv"], model)):
        host.run(ABOVE.format(top=f"/above/{number}", path=path))
    nccl = f"$(echo {packages})/nvidia/nccl/lib"  # what a build for CPU lacks
    host.run(f"mkdir -p {nccl} && echo 1 > {nccl}/libnccl.so.2")
    path = str(inventory([host], variables={"servewright_services": [declared]}))
    first = servewright("deploy", "-i", path, timeout=900)
    assert first.code == 0, first.text

    def drift(*arguments, code=0):
        done = servewright("drift", "-i", path, "--detailed-exitcode", *arguments, timeout=900)
        assert done.code == code, done.text
        return {one["id"] for one in done.service()["findings"]}

    assert drift() == set()

    host.run(f"useradd --system other; cp -a {UNIT} /root/unit; sed -i '{'; '.join(OTHERWISE)}' {UNIT}")
    host.run(f"systemctl daemon-reload; systemctl restart tiny; cp -a /root/unit {UNIT}; systemctl daemon-reload")
    multiarray = f"$(echo {packages}/numpy/_core/_multiarray_umath*.so)"
    for library in (LIBRARY, "_multiarray_umath"):
        host.run(f"until cat /proc/[0-9]*/maps | grep -q {library}; do sleep 0.5; done")
    # Under the running process, one thing after the other.
    files = {
        "true": OTHERWISE.values(),
        replaced(LIBRARY): [("process.libraries", LIBRARY)],
        replaced(multiarray): [("process.libraries", "_multiarray_umath")],
        f"echo '# mine' >> $(echo {packages})/vllm/version.py": [("engine.files", "vllm (changed)")],
        f"echo 2 > {nccl}/libnccl.so.2": [("engine.nccl", "libnccl.so.2 (changed)")],
        f"cp {model}/model.safetensors /root/w && cp /root/w {model}/model.safetensors": [
            ("model.files", "model.safetensors (changed)")
        ],
        limited("pids.max", "4321", "system.slice/tiny.service"): [("process.control_group", "4321")],
    }
    library, expected = Library(host, "/root/library.pyz"), set()
    for command, told in files.items():
        host.run(command)
        expected |= {finding for finding, _evidence in told}
        found = {one["id"]: "\n".join(one["evidence"]) for one in library.call("drift", ["tiny"])[0]["findings"]}
        assert set(found) == expected, command
        for finding, evidence in told:
            assert evidence in found[finding], found[finding]

    before = invocation(host, "tiny")
    assert drift("--repair", code=2) == expected - {"process.control_group"}
    assert invocation(host, "tiny") == before
    assert drift("--repair", "--allow-restart") == set()
    assert invocation(host, "tiny") != before
    assert drift() == set()
