"""Run `ansible-test sanity` over the collection as it is published, without a container and without Git.

`make sanity` runs this; arguments are passed on, for instance `dev/sanity.py --test validate-modules`. The
first run takes about two minutes, because ansible-test makes a virtual environment for each of its tests; it
keeps them in the cache folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from ansible_test._internal.python_requirements import get_venv_packages

ROOT = Path(__file__).resolve().parents[1]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "servewright" / "ansible-test"

# ansible-test downloads a script that installs pip into its environments, from a host that a closed network
# does not reach. A copy in its cache comes first: this one asks the pip that is already here.
INSTALL_PIP = f"""\
import subprocess, sys
pip = [{sys.executable!r}, "-m", "pip", "--python", sys.executable]
packages = [word for word in sys.argv[1:] if "==" in word]
sys.exit(subprocess.call([*pip, "install", "-qq", *packages]))
"""


def unpack_collection(folder: Path) -> Path:
    """Build the collection and unpack it where ansible-test wants it: below .../ansible_collections."""
    build = ["ansible-galaxy", "collection", "build", "--output-path", folder, ROOT]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    collection = folder / "ansible_collections" / "servewright" / "llm"
    collection.mkdir(parents=True)
    (archive,) = folder.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", collection], check=True)
    shutil.copytree(ROOT / "tests" / "packaging" / "sanity", collection / "tests" / "sanity")
    return collection


def main() -> int:
    pip_version = get_venv_packages(SimpleNamespace(version=PYTHON))["pip"]
    script = CACHE / ".ansible" / "test" / "cache" / f"get_pip_{pip_version.replace('.', '_')}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(INSTALL_PIP)

    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.call(
            ["ansible-test", "sanity", "--color", "no", "--local", "--python", PYTHON, *sys.argv[1:]],
            cwd=unpack_collection(Path(folder)),
            env=os.environ | {"HOME": str(CACHE)},
        )


if __name__ == "__main__":
    sys.exit(main())
