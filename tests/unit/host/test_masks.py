"""Secrets in text of others are not shown, and what is none is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.servewright.llm.plugins.module_utils.host.masks import named, shown

NAMES = [
    "HF_TOKEN",
    "MY_API_KEY",
    "MY_KEY",
    "WANDB_KEY",
    "PASSPHRASE",
    "AWS_SECRET_ACCESS_KEY",
    "db_password",
    "REDIS_PASS",
    "PGPASSWD",
    "DB_PWD",
    "API_KEYS",
    "SetCredential",
]
OPTIONS = ["--api-key", "--admin-api-key", "--hf-token", "--ssl-keyfile-password"]
WAYS = [
    "Environment={name}={value}",
    'Environment={name}="{value} {value}"',
    "Environment='{name}={value} {value}' B=1",
    'Environment="A=1" "{name}={value} {value}" "B=1"',
    'Environment="{name}=a {value}" WANDB_KEY={value}',
    'Environment="A=1 {name}={value} {value}" B=1',
    'Environment="{name}=a \\" {value}" B=1',
    'Environment={name}="{value} {value} \\',
    "+Environment={name}={value}",
    "/etc/systemd/system/kimi.service.d/o.conf:2: Environment={name}={value}",
    "server_args=ServerArgs(port=1, {name}='{value} {value}', x=1)",
    "{{'{name}': '{value} {value}', 'x': 1}}",
    '{{"{name}":"{value}","x":1}}',
    "SetCredential={name}:{value}",
    "curl -H 'Authorization: Bearer {value}'",
    "HTTP_PROXY=http://user:{value}@proxy:3128",
    "Environment=DB=postgres://{value}@host/db",
]
OPTION_WAYS = ["only running: {name} {value} --port 1", "+    {name} '{value} {value}' \\", "{name}={value}"]


@given(
    st.one_of(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(WAYS)),
        st.tuples(st.sampled_from(OPTIONS), st.sampled_from(OPTION_WAYS)),
    ),
    st.text("abcXYZ019_-+/.@=", max_size=8),
)
def test_no_value_of_a_secret_is_shown(way, more):
    name, text = way
    more = more.replace("/", "") if "://" in text else more  # an address has no "/" in there
    line = text.format(name=name, value=f"{more}canary{more}")
    assert "canary" not in shown(line), line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            'Environment="MY_TOKEN=aaa canary" WANDB_KEY=canary2 NCCL_ALGO=Ring',
            'Environment="MY_TOKEN=(not shown)" WANDB_KEY=(not shown) NCCL_ALGO=Ring',
        ),
        ("--api-key abc --port 1", "--api-key (not shown) --port 1"),
        ("HTTP_PROXY=http://user:pw@proxy:3128", "HTTP_PROXY=http://(not shown)@proxy:3128"),
    ],
)
def test_what_stands_around_a_secret_is_shown(line, expected):
    assert shown(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "o.conf:2: Environment=NCCL_ALGO=Ring",
        "only running: --max-total-tokens 8192 --tokenizer-path /opt/model --port 1",
        "max_num_batched_tokens=8192, tokenizer_mode='auto'",
        "HF_TOKEN: gone",
        "environment.HF_TOKEN: declared (secret), running None",
        "KeyError: 'model.layers.0'",
        "https://host/a?b=c@d",
        "the token of the release and the key differ",
        "/opt/keys/libfoo.so (changed)",
    ],
)
def test_what_is_no_secret_is_shown(line):
    assert shown(line) == line


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("--api-key", "abc", True),
        ("environment.HF_TOKEN", "abc", True),
        ("--max-total-tokens", "8192", False),
        ("--tokenizer-path", "/opt/key", False),
        ("--port", "token", False),
    ],
)
def test_a_name_tells_a_secret(name, value, secret):
    assert named(name, value) == secret
