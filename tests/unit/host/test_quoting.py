"""What is written for systemd is read back as it was declared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.servewright.llm.plugins.module_utils.host import ready, releases
from ansible_collections.servewright.llm.plugins.module_utils.host.quoting import (
    environment_file_line,
    environment_file_values,
)
from tests.unit.host.test_releases import rendered

NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]) | st.sampled_from('"\\$`\n='))


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_an_environment_file_is_read_back_as_it_was_written(values):
    assert environment_file_values("".join(environment_file_line(*item) for item in values.items())) == values


@pytest.mark.parametrize("key", ["plain", "a\\b", 'q"$`x', "a\\\\", "b\\"])
def test_a_key_with_special_characters_reaches_the_server(root, key):
    """It was written for systemd, whose quoting is undone for the requests of the gates."""
    release = rendered(engine="vllm", version="0.32.0", secrets={"VLLM_API_KEY": {"env": "KEY"}})
    # The value before ends like the line that is looked for.
    text = environment_file_line("A", "a\nVLLM_API_KEY=") + environment_file_line("VLLM_API_KEY", key)
    number = releases.stage(release, text)
    assert ready.client(release, number).headers == {"Authorization": f"Bearer {key}"}
