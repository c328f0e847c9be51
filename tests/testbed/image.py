"""The golden image in the cache: built once per recipe, whole or not there."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.testbed import recipe
from tests.testbed.command import execute
from tests.testbed.errors import CommandFailed, TestbedError
from tests.testbed.locks import locked
from tests.testbed.trees import remove_tree


@dataclass(frozen=True)
class Image:
    """A built image and the keys to the hosts that are made from it."""

    folder: Path

    @property
    def rootfs(self) -> Path:
        """The installed system."""
        return self.folder / "rootfs"

    @property
    def key(self) -> Path:
        """Private SSH key that logs in as root."""
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The SSH host key that all hosts of the image share."""
        return self.folder / "known_hosts"


def current_image(cache: Path, suite: str = recipe.SUITE) -> Image:
    """Where the image of the present recipe is, or will be once it is built."""
    return Image(cache / "images" / f"{suite}-{recipe.digest(suite)}")


def ensure_image(cache: Path, suite: str = recipe.SUITE) -> Image:
    """The image of the present recipe, built now if it is not there.

    A folder under the final name is complete, because it gets that name last.
    Raises TestbedError when the build fails.
    """
    image = current_image(cache, suite)
    if image.folder.exists():
        return image
    # said before the wait for the lock: another run may be at it
    print("servewright: the image of the test hosts is built, once, some minutes ...", file=sys.stderr)
    with locked(image.folder.with_suffix(".lock")) as lock:
        if not image.folder.exists():
            partial = Image(image.folder.with_suffix(".partial"))
            remove_tree(partial.folder)
            partial.folder.mkdir(mode=0o755)
            _build(partial, suite, lock)
            os.sync()  # a name that outlives a crash of the machine must not stand for files that did not
            partial.folder.rename(image.folder)
    return image


def _build(image: Image, suite: str, lock: int) -> None:
    host_key = image.folder / "host_ed25519"
    for key in (image.key, host_key):
        execute(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "servewright-testbed", "-f", str(key)])
    image.known_hosts.write_text(f"* {host_key.with_suffix('.pub').read_text()}")
    try:
        recipe.build(suite, image.rootfs, image.key.with_suffix(".pub").read_text(), host_key, lock)
    except CommandFailed as error:
        raise TestbedError(f"could not build the Debian image; {error}") from error
