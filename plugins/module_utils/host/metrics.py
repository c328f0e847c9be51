"""Files for node_exporter's textfile collector, in the text format of Prometheus."""

from __future__ import annotations

import os

from . import files


def write(folder, name, rows):
    """Replace a file of gauges in a folder. Raises HostError."""
    files.write(os.path.join(folder, name), text(rows))


def text(rows):
    """`rows` are (name, help, samples); a sample is what stands after the name: labels if any, a space, the value."""
    lines = []
    for name, words, samples in rows:
        lines += [f"# HELP {name} {words}", f"# TYPE {name} gauge", *(name + sample for sample in samples)]
    return "\n".join(lines) + "\n"
