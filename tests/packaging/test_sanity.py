"""ansible-test finds nothing wrong with the collection as it is published."""

from __future__ import annotations

import subprocess
import sys

from tests.packaging.conftest import ROOT


def test_ansible_test_sanity() -> None:
    done = subprocess.run([sys.executable, ROOT / "dev" / "sanity.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
