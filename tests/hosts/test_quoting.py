"""What is declared arrives byte for byte: a round trip through a real systemd."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.servewright.llm.plugins.module_utils.host import quoting
from tests.testbed import Host

# Any text an argument can hold: all of Unicode but NUL and lone surrogates, with what systemd treats specially often.
SPECIAL = st.sampled_from(
    ["%", "%%", "%n", "$", "$$", "${HOME}", "$HOME", '"', "'", "\\", "\\n", "\n", "\t", " ", ";", "#", "|", "&",
     "{}", '{"k": [1, "a b"]}', "é", "日本", "\x01", "\x7f", "\\x41", "=", "%3A", "-", "@", "!", "+", ":"]
)  # fmt: skip
TEXT = st.lists(st.one_of(SPECIAL, st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=6).map(
    "".join
)
NAMES = st.from_regex(r"\AX[A-Z0-9_]{0,8}\Z")
# systemd drops variables with control characters other than line breaks and tabs (env_value_is_valid in env-util.c).
VALUES = TEXT.map(lambda text: "".join(c for c in text if c in "\n\t" or (c >= " " and c != "\x7f")))
UNITS = st.lists(
    st.fixed_dictionaries(
        {
            "argv": st.lists(TEXT, max_size=4),
            "environment": st.dictionaries(NAMES, VALUES, max_size=3),
            "secrets": st.dictionaries(NAMES.map(lambda name: "S" + name), VALUES, max_size=3),
        }
    ),
    min_size=8,
    max_size=8,
)

DUMP = """
import json, os, sys
read = lambda name: open('/proc/self/' + name, 'rb').read().hex()
json.dump({'cmdline': read('cmdline'), 'environ': read('environ')}, open(os.environ['XX_OUT'], 'w'))
"""


@pytest.fixture(scope="module")
def quiet_host(testbed):
    host = testbed.boot("quoting")
    (host.root / "opt/dump.py").write_text(DUMP)
    yield host
    testbed.destroy(host)


@pytest.mark.failure("6.1", "6.2")
@given(UNITS)
@settings(
    max_examples=12,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_6_1_and_6_2_arguments_and_environment_arrive_byte_for_byte(quiet_host: Host, units):
    for number, unit in enumerate(units):
        (quiet_host.root / f"etc/dump{number}.env").write_text(
            "".join(quoting.environment_file_line(*item) for item in unit["secrets"].items())
        )
        lines = [
            "[Service]",
            "Type=oneshot",
            f"EnvironmentFile=/etc/dump{number}.env",
            f"Environment=XX_OUT=/run/dump{number}.json",
            *(f"Environment={quoting.quote_assignment(*item)}" for item in unit["environment"].items()),
            "ExecStart=/usr/bin/python3 /opt/dump.py " + " ".join(map(quoting.quote_argument, unit["argv"])),
        ]
        (quiet_host.root / f"etc/systemd/system/dump{number}.service").write_text("\n".join(lines) + "\n")
    names = " ".join(f"dump{number}" for number in range(len(units)))
    quiet_host.run(f"rm -f /run/dump*.json; systemctl daemon-reload && systemctl start {names}")
    out = quiet_host.run("tail -n +1 /run/dump*.json").stdout
    seen = {}
    for block in out.split("==> ")[1:]:
        path, _, content = block.partition(" <==\n")
        seen[path] = json.loads(content)
    for number, unit in enumerate(units):
        found = seen[f"/run/dump{number}.json"]
        argv = bytes.fromhex(found["cmdline"]).split(b"\0")[:-1]
        assert argv == [word.encode() for word in ["/usr/bin/python3", "/opt/dump.py", *unit["argv"]]]
        environ = dict(item.split(b"=", 1) for item in bytes.fromhex(found["environ"]).split(b"\0") if item)
        for name, value in (unit["environment"] | unit["secrets"]).items():
            assert environ[name.encode()] == value.encode()
