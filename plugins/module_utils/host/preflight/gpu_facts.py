"""What GPU drivers say when something is wrong, and what to do about it. Data only."""

from __future__ import annotations

# What nvidia-smi prints when it cannot list the GPUs: a part of its text, and the repair.
NVML_FAILURES = (
    (
        "Driver/library version mismatch",
        "an upgrade replaced the driver's library under its kernel module: what runs still runs, what is restarted "
        "does not. Reboot the host when its services may stop, and hold the driver's packages (apt-mark hold)",
    ),
    ("couldn't communicate with the NVIDIA driver", "load the kernel module (modprobe nvidia), or install the driver"),
    (
        "Unable to determine the device handle",
        "a GPU has fallen off the bus: reboot the host, then look at its seat and power",
    ),
    ("GPU is lost", "a GPU has fallen off the bus: reboot the host, then look at its seat and power"),
    ("No devices were found", "the driver sees no GPU: look at the kernel log (journalctl -k -g NVRM)"),
    ("is not installed", "install the NVIDIA driver, or claim no GPUs"),
    (
        "did not end within",
        "the driver hangs: look at the kernel log (journalctl -k -g NVRM); a reboot is likely needed",
    ),
)

# What to do about a warning of nvidia-smi; it has that of a corrupted infoROM only.
INFOROM = "the GPU computes, but what it remembers of its memory errors can get lost: ask its vendor for a repair"

# Xid errors that are the hardware's or the driver's, not a program's: number, meaning, repair. Others (13, 31, 43, 45,
# ...) come of programs and say nothing about the next one. Source: NVIDIA, "Xid Errors", r580.
XIDS = {
    48: ("double bit ECC error", "reset or reboot; when it comes again, have the GPU replaced"),
    62: ("internal micro-controller halt", "reboot"),
    64: ("ECC row remapping failed", "have the GPU replaced"),
    74: ("NVLink error", "look at the NVLink bridges, then reset or reboot"),
    79: ("GPU has fallen off the bus", "reboot, then look at its seat and power"),
    92: ("high rate of single bit ECC errors", "watch it; when it goes on, have the GPU replaced"),
    94: ("contained ECC error", "restart what used the GPU; when it comes again, have it replaced"),
    95: ("uncontained ECC error", "reset or reboot; when it comes again, have the GPU replaced"),
    119: ("GSP firmware does not answer", "reset or reboot"),
    120: ("GSP firmware error", "reset or reboot"),
    140: ("unrecovered ECC error", "reset or reboot; when it comes again, have the GPU replaced"),
    154: ("GPU needs recovery", "do what the kernel log says: reset, drain or reboot"),
}
