"""A process that left its service: double fork, own session, no unit, another name; it heeds no SIGTERM.

Copied to a test host and run there as root:

    python3 stray.py USER PORT GPU UNIT|- [NAME=VALUE ...]

holds the port and 20 GB of the GPU (0: none, -: none) as USER with this environment, in the control group of a unit or
in one that is no unit's, and writes its pid to /var/tmp/stray.
"""

import glob
import os
import pwd
import sys

BODY = """
import ctypes, json, os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ctypes.CDLL(None).prctl(15, b"sglang::schedul")
if sys.argv[2] != "-":
    with open("/dev/simulator-gpu/%d" % os.getpid(), "w") as stream:
        json.dump({sys.argv[2]: 20000}, stream)
if sys.argv[1] != "0":
    server = socket.socket()
    server.bind(("127.0.0.1", int(sys.argv[1])))
    server.listen()
os.write(int(sys.argv[3]), str(os.getpid()).encode())
time.sleep(3600)
"""


def move(pid, unit):
    """Move a process by hand, in every hierarchy."""
    for folder in ["/sys/fs/cgroup", *sorted(glob.glob("/sys/fs/cgroup/*"))]:
        target = folder + "/stray" if unit == "-" else f"{folder}/system.slice/{unit}"
        if os.path.exists(folder + "/cgroup.procs"):
            try:
                os.makedirs(target, exist_ok=True)
                with open(target + "/cgroup.procs", "w") as stream:
                    stream.write(str(pid))
            except OSError:
                pass  # cpuset wants to be set up first; no unit is told by it


if __name__ == "__main__":
    if sys.argv[1] == "move":
        move(sys.argv[2], "-")
        sys.exit()
    user, port, gpu, unit, *environment = sys.argv[1:]
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    move(os.getpid(), unit)
    said = os.open("/var/tmp/stray", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.set_inheritable(said, True)
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.setgroups([])
    os.setgid(pwd.getpwnam(user).pw_gid)
    os.setuid(pwd.getpwnam(user).pw_uid)
    words = ["sglang::scheduler_TP0", "-c", BODY, port, gpu, str(said)]
    os.execve("/usr/bin/python3", words, dict(pair.split("=", 1) for pair in environment))
