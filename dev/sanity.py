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


def provide_pip() -> None:
    """Put a script that installs pip where ansible-test looks before it downloads its own.

    It would do so from a host that a closed network does not reach; the index that pip uses has the same pip.
    """
    version = get_venv_packages(SimpleNamespace(version=PYTHON))["pip"]
    wheel = CACHE / f"pip-{version}-py3-none-any.whl"
    if not wheel.exists():
        download = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--dest", CACHE, f"pip=={version}"]
        subprocess.run(download, check=True)
    script = CACHE / ".ansible" / "test" / "cache" / f"get_pip_{version.replace('.', '_')}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(
        "import sysconfig, zipfile\n"
        f"zipfile.ZipFile({str(wheel)!r}).extractall(sysconfig.get_path('purelib'))\n"
    )


def main() -> int:
    provide_pip()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.call(
            ["ansible-test", "sanity", "--color", "no", "--local", "--python", PYTHON, *sys.argv[1:]],
            cwd=unpack_collection(Path(folder)),
            env=os.environ | {"HOME": str(CACHE)},
        )


if __name__ == "__main__":
    sys.exit(main())
