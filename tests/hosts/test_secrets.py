"""A secret reaches the engine, and nothing else: no argument, unit, log, event, artifact or readable file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.hosts.commands import BIN, PATH, ROOT, canary_hits, servewright, service

CANARY = 'CANARY-3c1f%$"x'


@pytest.mark.failure("8.8", "8.9", "8.10", "8.11")
@pytest.mark.failure("6.8")
def test_8_8_8_9_8_10_and_8_11_a_secret_is_seen_by_the_engine_alone(engine_host, inventory, tmp_path):
    host = engine_host
    (host.root / "root/key").write_text(CANARY + "-file\n")
    declared = service(
        "vllm",
        secrets={
            "VLLM_API_KEY": {"variable": "vault_key"},
            "FROM_ENV": {"env": "CONTROLLER_SECRET"},
            "FROM_FILE": {"file": "/root/key"},
        },
    )
    path = inventory([host], variables={"servewright_services": [declared], "vault_key": CANARY + "-var"})
    command = [BIN / "ansible-runner", "run", ROOT, "-p", "playbooks/deploy.yml", "-vvv",
               "--inventory", path, "--artifact-dir", tmp_path / "artifacts"]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        env={"PATH": PATH, "HOME": str(tmp_path), "ANSIBLE_DIFF_ALWAYS": "1", "CONTROLLER_SECRET": CANARY + "-env"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    pid = host.run("systemctl show kimi -p MainPID --value").stdout.strip()
    environ = host.run(f"cat /proc/{pid}/environ").stdout.split("\0")
    for name, kind in (("VLLM_API_KEY", "var"), ("FROM_ENV", "env"), ("FROM_FILE", "file")):
        assert f"{name}={CANARY}-{kind}" in environ
    # the gates asked with the key, or the server would have refused them
    assert servewright("verify", "-i", str(path)).code == 0

    for text in (done.stdout, done.stderr, json.dumps(servewright("status", "-i", str(path)).document)):
        assert "CANARY" not in text
    # ansible-runner itself keeps the environment it was started in; the command line of servewright turns that off
    hits = canary_hits("CANARY", [tmp_path / "artifacts"])
    assert [hit for hit in hits if not hit.endswith("/command")] == []
    assert CANARY + "-var" not in "".join(Path(hit).read_text() for hit in hits)
    assert "CANARY" not in host.run("systemctl show kimi; systemctl cat kimi; journalctl --no-pager; ps axww").stdout
    readable = host.run("grep -rlI CANARY /etc /var /usr/local /run /tmp 2>/dev/null || true", user="nobody").stdout
    assert readable == ""
    files = host.run("grep -rlI CANARY /etc /var/lib /var/cache /usr/local 2>/dev/null || true").stdout.split()
    assert files == ["/etc/servewright/kimi/releases/1/environment"]
    assert host.run("stat -c '%a %U' /etc/servewright/kimi/releases/1/environment").stdout == "600 root\n"
