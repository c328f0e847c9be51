#!/bin/bash
# Boots a systemd host on this machine (host.sh) and runs run.py in it.
#   go.sh CONFIG OUT PYTHON DEBS   PYTHON: of a virtual environment that has servewright
set -euo pipefail
here=$(dirname "$(realpath "$0")") config=$1 out=$2 python=$3 debs=$4
state=$(mktemp -d)
setsid "$here/host.sh" "$debs" "$state" > "$out/host.log" 2>&1 &
for ((i = 0; i < 100; i++)); do [ -s "$state/pid" ] && break; sleep 0.2; done
pid=$(cat "$state/pid")
trap 'kill -9 $pid' EXIT
inside=(nsenter --target "$pid" --mount --uts --ipc --pid --cgroup)
for ((i = 0; i < 60; i++)); do
    case $("${inside[@]}" systemctl is-system-running 2>&1) in running | degraded) break ;; esac
    sleep 0.25
done
# A driver that is mounted beside the system is found by systemd's services as by a shell here.
if [ -d /usr/local/nvidia/lib64 ]; then
    ln -sf /usr/local/nvidia/bin/nvidia-smi "/proc/$pid/root/usr/local/bin/nvidia-smi"
    echo /usr/local/nvidia/lib64 > "/proc/$pid/root/etc/ld.so.conf.d/nvidia-driver.conf"
    "${inside[@]}" ldconfig
fi
mkdir -p "/proc/$pid/root/root/run"
cp "$here/run.py" "$config" "/proc/$pid/root/root/run/"
"${inside[@]}" "$python" -u /root/run/run.py "/root/run/$(basename "$config")" /root/run || true
cp "/proc/$pid/root/root/run/"{results,recordings}.json "/proc/$pid/root/root/run/journal.txt" "$out/"
