"""What happens to a host behind servewright's back: the table that tests/hosts/test_drift.py goes through."""

from __future__ import annotations

from dataclasses import dataclass

UNIT = "/etc/systemd/system/kimi.service"
RELEASE = "/etc/servewright/kimi/releases/1"
VENV = "/opt/servewright/engines/sglang-0.5.23"
PACKAGES = f"{VENV}/lib/python3.11/site-packages"
MODEL = "/opt/simulator/model"
RELOAD = "systemctl daemon-reload"


@dataclass(frozen=True)
class Mutation:
    """One row: a shell command, the findings it causes, and what mends them.

    `by_hand` is what a person does first, when the finding is one that a repair leaves alone. `restarts` says whether
    mending restarts the process, `by_itself` whether the mutation does; `evidence` is text that the evidence holds.
    """

    name: str
    command: str
    finds: frozenset[str]
    evidence: str = ""
    restarts: bool = False
    by_itself: bool = False
    by_hand: str = ""


def drop_in(folder: str, lines: str, name: str = "override", unit: str = "kimi.service") -> str:
    return f"mkdir -p {folder}/{unit}.d && printf '{lines}' > {folder}/{unit}.d/{name}.conf"


def ran_with(change: str) -> str:
    """The process was started from a changed unit, and the unit is right again."""
    return (
        f"cp -a {UNIT} /root/unit && sed -i '{change}' {UNIT} && {RELOAD} && systemctl restart kimi"
        f" && cp -a /root/unit {UNIT} && {RELOAD}"
    )


def loaded_with(change: str) -> str:
    """The same, and the engine has loaded."""
    return f"{ran_with(change)}; until ss -Hltn 'sport = 30000' | grep -q .; do sleep 0.1; done"


def loaded_with_line(line: str) -> str:
    return loaded_with(f"s/^UMask=.*/UMask=0077\\n{line}/")


def replaced(path: str) -> str:
    """As a package manager does it: a new file takes the name, and processes keep the old one."""
    return f"cp --preserve=mode,timestamps {path} {path}.new && mv {path}.new {path}"


def limited(name: str, value: str, group: str = "system.slice/kimi.service") -> str:
    """Write to the kernel's file, in the hierarchy of either version."""
    return (
        f"for folder in memory pids .; do file=/sys/fs/cgroup/$folder/{group}/{name};"
        f" if [ -e $file ]; then echo {value} > $file; exit; fi; done; exit 1"
    )


def row(name: str, command: str, *finds: str, **more: object) -> Mutation:
    return Mutation(name, command, frozenset(finds), **more)  # type: ignore[arg-type]


TABLE = (
    # The unit file.
    row("unit edited", f"echo '# mine' >> {UNIT}", "unit.file", evidence="+# mine"),
    row("unit edited and read", f"sed -i 's/LimitNOFILE=.*/LimitNOFILE=2048/' {UNIT} && {RELOAD}", "unit.file",
        evidence="+LimitNOFILE=2048"),
    row("unit edited, read and started",
        f"sed -i 's/--served-model-name kimi-k2.5/& --random-seed 7/' {UNIT} && {RELOAD} && systemctl restart kimi",
        "unit.file", "process.argv",
        evidence="only running: --random-seed 7", restarts=True, by_itself=True),
    row("unit deleted", f"rm {UNIT}", "unit.file"),
    row("unit deleted and read", f"rm {UNIT} && {RELOAD}", "unit.file"),
    row("unit emptied", f": > {UNIT}", "unit.file"),
    row("unit cut short and read", f"truncate -s 900 {UNIT} && {RELOAD}", "unit.file"),
    row("unit replaced by a link", f"mv {UNIT} /root/kimi.service && ln -s /root/kimi.service {UNIT} && {RELOAD}",
        "unit.file", evidence="-> /root/kimi.service"),
    row("unit of another release", f"sed 's/^Release=1/Release=9/' -i {UNIT}", "unit.file", evidence="+Release=9"),
    row("unit writable by all", f"chmod 0666 {UNIT}", "unit.permissions", evidence="mode 0666"),
    row("unit of another owner", f"chown nobody {UNIT}", "unit.permissions"),
    row("unit masked", f"rm {UNIT} && systemctl mask kimi", "unit.masked", evidence="/dev/null"),
    row("unit disabled", "systemctl disable kimi", "unit.disabled", evidence="UnitFileState=disabled"),
    row("unit written again", f"touch {UNIT}", "unit.stale", evidence="NeedDaemonReload=yes"),
    row("unit hidden for good", f"mkdir -p /etc/systemd/system.control && cp {UNIT} /etc/systemd/system.control/",
        "unit.shadowed", evidence="/etc/systemd/system.control/kimi.service"),
    row("unit hidden until the next boot", f"mkdir -p /run/systemd/system.control && sed 's/Restart=.*/Restart=no/'"
        f" {UNIT} > /run/systemd/system.control/kimi.service && {RELOAD}", "unit.shadowed"),
    # Drop-ins.
    row("drop-in not read yet", drop_in("/etc/systemd/system", "[Service]\\nEnvironment=NCCL_ALGO=Tree\\n"),
        "unit.drop_in", evidence="override.conf:2: Environment=NCCL_ALGO=Tree"),
    row("drop-in read", drop_in("/etc/systemd/system", "[Service]\\nTimeoutStopSec=5\\n") + f" && {RELOAD}",
        "unit.drop_in", evidence="override.conf:2: TimeoutStopSec=5"),
    row("drop-in in /run", drop_in("/run/systemd/system", "[Unit]\\nDescription=mine\\n") + f" && {RELOAD}",
        "unit.drop_in", evidence="/run/systemd/system/kimi.service.d/override.conf:2: Description=mine"),
    row("drop-in of a vendor that beats one of the administrator",
        drop_in("/usr/lib/systemd/system", "[Service]\\nRestart=no\\n", "zz-vendor") + " && "
        + drop_in("/etc/systemd/system", "[Service]\\nRestart=on-failure\\n", "override") + f" && {RELOAD}",
        "unit.drop_in", evidence="zz-vendor.conf:2: Restart=no"),
    row("drop-in without a setting", drop_in("/etc/systemd/system", "# later\\n"), "unit.drop_in"),
    row("memory limited by set-property", "systemctl set-property kimi MemoryMax=6G", "unit.drop_in",
        evidence="MemoryMax=6"),
    row("tasks limited until the next boot", "systemctl set-property --runtime kimi TasksMax=5000", "unit.drop_in",
        evidence="TasksMax=5000"),
    row("drop-in with secrets", drop_in("/etc/systemd/system", "[Service]\\n"
        "Environment=\"MY_TOKEN=a canary\" WANDB_KEY=canary HTTP_PROXY=http://me:canary@proxy\\n"),
        "unit.drop_in", evidence='"MY_TOKEN=(not shown)" WANDB_KEY=(not shown) HTTP_PROXY=http://(not shown)@proxy'),
    row("drop-in in force", drop_in("/etc/systemd/system", "[Service]\\nEnvironment=OMP_NUM_THREADS=3\\n")
        + f" && {RELOAD} && systemctl restart kimi", "unit.drop_in", "process.environment",
        evidence="environment.OMP_NUM_THREADS: declared None", restarts=True, by_itself=True),
    row("drop-in for every service", drop_in("/etc/systemd/system", "[Service]\\nLogRateLimitBurst=5000\\n", "all",
        "service") + f" && {RELOAD}", "unit.shared_drop_in", evidence="LogRateLimitBurst=5000", restarts=True),
    # The process.
    row("started with another argument", ran_with("s/--served-model-name kimi-k2.5/& --random-seed 9/"), "process.argv",
        evidence="--random-seed 9", restarts=True, by_itself=True),
    row("started with another NCCL value", ran_with("s/NCCL_P2P_LEVEL=SYS/NCCL_P2P_LEVEL=NVL/"),
        "process.environment", evidence="environment.NCCL_P2P_LEVEL: declared SYS, running NVL",
        restarts=True, by_itself=True),
    row("started without an NCCL value", ran_with("/NCCL_P2P_LEVEL=SYS/d"), "process.environment",
        evidence="declared SYS, running None", restarts=True, by_itself=True),
    row("started with a variable more", ran_with("s/^UMask=.*/UMask=0077\\nEnvironment=LD_PRELOAD=/"),
        "process.environment", evidence="environment.LD_PRELOAD", restarts=True, by_itself=True),
    row("started as another user", "useradd --system other; " + ran_with("s/^User=.*/User=other/"), "process.user",
        restarts=True, by_itself=True),
    row("started with fewer files", ran_with("s/^LimitNOFILE=.*/LimitNOFILE=4096/"), "process.limits",
        evidence="running 4096", restarts=True, by_itself=True),
    row("started with another group", loaded_with_line("Group=daemon"), "process.user",
        evidence="user.group: declared", restarts=True, by_itself=True),
    row("started with a group more", loaded_with_line("SupplementaryGroups=video"), "process.user",
        evidence="user.groups: declared", restarts=True, by_itself=True),
    # Each of these implies it for a user without privileges.
    row("started with new privileges", loaded_with("/^NoNew\\|^RestrictS\\|^LockP\\|^SystemCall\\|^ProtectKernel/d"),
        "process.user", evidence="user.no_new_privileges: declared 1, running 0", restarts=True, by_itself=True),
    row("started with fewer processes", loaded_with_line("LimitNPROC=20000"), "process.limits",
        evidence="limits.nproc: declared default, running 20000", restarts=True, by_itself=True),
    row("started with core dumps", loaded_with_line("LimitCORE=infinity"), "process.limits",
        evidence="limits.core: declared 0, running unlimited", restarts=True, by_itself=True),
    row("started with a smaller stack", loaded_with_line("LimitSTACK=4M"), "process.limits",
        evidence="limits.stack.hard: declared unlimited, running 4194304", restarts=True, by_itself=True),
    row("started with less address space", loaded_with_line("LimitAS=1T"), "process.limits",
        evidence="limits.as: declared unlimited, running 1099511627776", restarts=True, by_itself=True),
    row("started with less locked memory", ran_with("s/^LimitMEMLOCK=.*/LimitMEMLOCK=64K/"), "process.limits",
        evidence="limits.locked_memory: declared unlimited, running 65536", restarts=True, by_itself=True),
    row("locked memory of a worker lowered", "sudo -u llm-kimi prlimit --memlock=65536 --pid $(pgrep -P"
        " $(systemctl show kimi -p MainPID --value) | head -1)", "process.limits",
        evidence="): declared unlimited, running 65536", restarts=True),
    row("started nice", loaded_with_line("Nice=5"), "process.limits", evidence="limits.nice: declared 0, running 5",
        restarts=True, by_itself=True),
    row("started on one processor", loaded_with_line("CPUAffinity=0"), "process.limits",
        evidence="limits.cpus: declared default, running 0", restarts=True, by_itself=True),
    row("started as the first to be killed", loaded_with_line("OOMScoreAdjust=500"), "process.limits",
        evidence="limits.oom_score_adj: declared 0, running 500", restarts=True, by_itself=True),
    row("limit lowered while running", "sudo -u llm-kimi prlimit --nofile=1024:20000 --pid"
        " $(systemctl show kimi -p MainPID --value)", "process.limits", evidence="running 1024", restarts=True),
    row("memory limited in the kernel", limited("memory.limit_in_bytes", "6442450944") .replace(
        "exit 1", f"{{ {limited('memory.max', '6442450944')}; }}"), "process.control_group", evidence="6442450944"),
    row("processes limited in the kernel", limited("pids.max", "4321"), "process.control_group", evidence="4321"),
    row("processes of all services limited", limited("pids.max", "5432", "system.slice"), "process.control_group",
        evidence="5432"),
    row("processor time of the service weighed", "cd /sys/fs/cgroup && if [ -d cpu ];"
        " then mkdir -p cpu/system.slice/kimi.service && echo 2048 > cpu/system.slice/kimi.service/cpu.shares;"
        " else echo +cpu > system.slice/cgroup.subtree_control && echo 200 > system.slice/kimi.service/cpu.weight; fi",
        "process.control_group", evidence="cpu."),
    row("library replaced", replaced("/usr/lib/x86_64-linux-gnu/libz.so.1.2.13k"), "process.libraries",
        evidence="libz.so.1.2.13k", restarts=True),
    row("interpreter replaced", replaced("/usr/bin/python3.11"), "process.libraries", evidence="/usr/bin/python3.11",
        restarts=True),
    # Files that the process was started from.
    row("engine patched", f"echo '# mine' >> {PACKAGES}/sglang/launch_server.py", "engine.files",
        evidence="sglang (changed)", restarts=True),
    row("module for every start of the interpreter", f"echo 'import os' > {PACKAGES}/sitecustomize.py", "engine.files",
        evidence="sitecustomize.py (new)", restarts=True),
    row("path file added to the engine", f"echo 'import os' > {PACKAGES}/evil.pth", "engine.files",
        evidence="evil.pth (new)", restarts=True),
    row("environment of the engine edited", f"echo 'include-system-site-packages = true' >> {VENV}/pyvenv.cfg",
        "engine.files", evidence="pyvenv.cfg (", restarts=True),
    row("another libnccl in a package", f"mkdir {PACKAGES}/sglang/lib && cp {PACKAGES}/nvidia/nccl/lib/libnccl.so.2"
        f" {PACKAGES}/sglang/lib/", "engine.nccl", evidence="sglang/lib/libnccl.so.2 (new)", restarts=True),
    row("package added to the engine", f"mkdir {PACKAGES}/mine && touch {PACKAGES}/mine/__init__.py", "engine.files",
        evidence="mine (new)", restarts=True),
    row("package taken from the engine", f"rm -r {PACKAGES}/extra", "engine.files", evidence="extra (gone)",
        restarts=True),
    row("another version installed", f"mv {PACKAGES}/sglang-0.5.23.dist-info {PACKAGES}/sglang-0.5.24.dist-info",
        "engine.files", evidence="sglang-0.5.24.dist-info (new)", restarts=True),
    row("libnccl replaced", f"echo other >> {PACKAGES}/nvidia/nccl/lib/libnccl.so.2", "engine.nccl",
        evidence="libnccl.so.2 (changed)", restarts=True),
    row("weights replaced", f"set -- {MODEL}/*.safetensors; cp $1 /root/w && cp /root/w $1", "model.files",
        evidence=".safetensors (changed)", restarts=True),
    row("file added to the model", f"echo x > {MODEL}/notes.txt", "model.files", evidence="notes.txt (new)",
        restarts=True),
    row("config.json edited without a trace", f"touch -r {MODEL}/config.json /root/t &&"
        f" sed -i '0,/\"/s/\\n*$/ /' {MODEL}/config.json && touch -r /root/t {MODEL}/config.json", "model.files",
        evidence="config.json (changed)", restarts=True),
    row("model moved away", f"mv {MODEL} {MODEL}.away", "model.files", by_hand=f"mv {MODEL}.away {MODEL}"),
    row("/etc/nccl.conf", "echo NCCL_SHM_DISABLE=1 > /etc/nccl.conf", "nccl.conf",
        evidence="NCCL_SHM_DISABLE: None -> 1 (/etc/nccl.conf)", restarts=True),
    row("~/.nccl.conf", "mkdir -p /nonexistent && echo NCCL_CROSS_NIC=0 > /nonexistent/.nccl.conf", "nccl.conf",
        evidence="NCCL_CROSS_NIC", restarts=True),
    # The host.
    row("kernel parameter", "cp /proc/cmdline /root/cmdline && sed -i 's/$/ iommu=pt/' /root/cmdline &&"
        " mount --bind /root/cmdline /proc/cmdline", "host.command_line", evidence="new: iommu=pt"),
    row("driver upgraded", "sed -i s/580.95.05/580.105.08/ /proc/driver/nvidia/version &&"
        " ln -sf libcuda.so.580.105.08 /usr/lib/x86_64-linux-gnu/libcuda.so.1", "host.driver",
        evidence="module: 580.95.05 -> 580.105.08"),
    row("driver upgraded without a boot", "ln -sf libcuda.so.590.1.1 /usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "host.driver", evidence="-> 590.1.1",
        by_hand="sed -i 's/Module for x86_64  [0-9.]*/Module for x86_64  590.1.1/' /proc/driver/nvidia/version"),
    row("nvidia-smi finds another library", "echo '{\"mismatch\": true}' > /etc/simulator/nvidia-smi.json",
        "host.nvidia_smi", by_hand="rm /etc/simulator/nvidia-smi.json"),
    row("GPU fallen off the bus", "echo '{\"hide\": [7]}' > /etc/simulator/nvidia-smi.json", "claim.gpus_missing",
        by_hand="rm /etc/simulator/nvidia-smi.json"),
    row("IOMMU translates", "echo DMA > /sys/kernel/iommu_groups/0/type", "host.iommu", evidence="DMA"),
    # Source validation alone, which redirects nothing: with what does, no service would be started any more.
    row("ACS set by a boot", "printf '\\001\\000' | dd of=/sys/bus/pci/devices/0000:40:01.1/config bs=1"
        " seek=262 conv=notrunc", "host.acs", evidence="0000:40:01.1: 0x0000 -> 0x0001"),
    row("sysctl", "echo 1 > /proc/sys/vm/overcommit_memory", "host.sysctl",
        evidence="vm.overcommit_memory: 0 -> 1"),
    row("logind", "mkdir -p /etc/systemd/logind.conf.d && printf '[Login]\\nKillUserProcesses=yes\\n'"
        " > /etc/systemd/logind.conf.d/kill.conf", "host.logind", evidence="KillUserProcesses: no -> yes"),
    row("variable for every service", "systemctl set-environment NCCL_DEBUG_FILE=/tmp/log",
        "host.manager_environment", evidence="NCCL_DEBUG_FILE: new"),
    row("timer of the watch disabled", "systemctl disable --quiet --now servewright-watch-kimi.timer", "watch.timer",
        evidence="not enabled"),
    row("timer of the watch edited", "sed -i s/86400/864000/ /etc/systemd/system/servewright-watch-kimi.timer",
        "watch.timer", evidence="servewright-watch-kimi.timer (edited)"),
    # The service and its claim.
    row("stopped", "systemctl stop kimi", "service.down", evidence="ActiveState=inactive", restarts=True,
        by_itself=True),
    row("stranger with a secret on its port", "systemctl stop kimi && systemd-run --quiet --unit stranger"
        " python3 -c 'import http.server as h;h.test(port=30000)' --api-key canary && until ss -Hltn"
        " 'sport = 30000' | grep -q .; do sleep 0.1; done", "service.down", "claim.port",
        evidence="--api-key (not shown)", restarts=True, by_itself=True, by_hand="systemctl stop stranger"),
    row("killed, with a stranger on its port", "systemctl stop kimi && systemd-run --quiet --unit stranger"
        " python3 -m http.server 30000 --bind 127.0.0.1 && until ss -Hltn 'sport = 30000' | grep -q .; do sleep 0.1;"
        " done; systemctl start kimi; until [ $(systemctl show kimi -p NRestarts --value) -gt 0 ]; do sleep 0.1; done",
        "service.restarting", "claim.port", evidence="http.server", restarts=True, by_itself=True,
        by_hand="systemctl stop stranger"),
    row("stranger on its GPUs", "systemd-run --quiet --unit stranger sleep 1000 && echo '{\"3\": 4000}'"
        " > /run/simulator/gpu/$(systemctl show stranger -p MainPID --value)", "claim.gpus",
        evidence="GPU 3: 4000 MiB by pid", by_hand="systemctl stop stranger"),
    # What servewright keeps for itself.
    row("unit of the release edited", f"echo '# mine' >> {RELEASE}/unit", "release.unit"),
    row("secrets readable by all", f"chmod 0644 {RELEASE}/environment", "release.permissions", evidence="mode 0644"),
    row("secret changed on disk", f"sed -i s/canary/other/ {RELEASE}/environment", "process.secrets",
        evidence="HF_TOKEN: (not shown)", restarts=True),
    row("secrets lost", f"mv {RELEASE}/environment /root/", "release.damaged", evidence="environment is missing",
        by_hand=f"mv /root/environment {RELEASE}/"),
    row("secrets emptied", f"cp -a {RELEASE}/environment /root/ && : > {RELEASE}/environment", "release.damaged",
        evidence="has no value of HF_TOKEN", by_hand=f"mv /root/environment {RELEASE}/"),
    row("release edited", f"cp -a {RELEASE}/release.json /root/ && sed -i s/kimi-k2.5/kimi-k3/ {RELEASE}/release.json",
        "release.damaged", evidence="release.json", by_hand=f"mv /root/release.json {RELEASE}/"),
    row("record of the commit lost", "mv /var/lib/servewright/kimi/committed.json /root/", "release.damaged",
        evidence="committed.json is missing", by_hand="mv /root/committed.json /var/lib/servewright/kimi/"),
    row("library removed", "rm /usr/local/lib/servewright/host.pyz", "host.library"),
    row("library of somebody else", "python3 -m zipfile -c /usr/local/lib/servewright/host.pyz /etc/hostname",
        "host.library"),
    row("recovery not enabled", "systemctl disable servewright-recover.service", "host.recovery"),
    row("recovery edited", "echo >> /etc/systemd/system/servewright-recover.service", "host.recovery"),
)
