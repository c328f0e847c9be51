#!/bin/bash
# Boots systemd as PID 1 over a copy-on-write view of this machine's own root, for a machine that has GPUs but no
# systemd: its drivers, CUDA and Python are in the host at their own paths. Ends with this process.
#   host.sh DEBS STATE   DEBS: folder of Debian packages with systemd and dbus; STATE: an empty folder
# Prints the pid of the host's PID 1 into STATE/pid.
set -euo pipefail
debs=$(realpath "$1") state=$2
mkdir -p "$state"
mountpoint -q "$state" || mount -t tmpfs -o mode=755,size=75% tmpfs "$state"
mkdir -p "$state"/{upper,work,root,tree}
root=$state/root
mount -t overlay -o lowerdir=/,upperdir="$state/upper",workdir="$state/work" overlay "$root"
for deb in "$debs"/*.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink --skip-old-files; done
chroot "$root" ldconfig
grep -q ^messagebus: "$root/etc/passwd" || chroot "$root" useradd --system --user-group --no-create-home --home-dir /nonexistent messagebus
for name in systemd-network systemd-resolve systemd-timesync systemd-journal; do
    getent group $name >/dev/null || chroot "$root" groupadd --system $name
done
for name in console-getty.service getty@tty1.service getty-static.service systemd-pstore.service systemd-networkd.service systemd-networkd.socket systemd-resolved.service \
    systemd-timesyncd.service systemd-udevd.service systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-modules-load.service systemd-sysctl.service \
    systemd-remount-fs.service systemd-firstboot.service e2scrub_reap.service fstrim.timer apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
    systemd-binfmt.service proc-sys-fs-binfmt_misc.automount sys-kernel-debug.mount sys-kernel-tracing.mount dev-hugepages.mount systemd-hwdb-update.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$name"
done
: > "$root/etc/fstab"; : > "$root/etc/machine-id"
ln -sf /usr/lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
# What is mounted below the root is not in the overlay.
awk '{print $5}' /proc/self/mountinfo | sort -u | grep -vE "^/(proc|sys|dev|run|tmp)(/|$)|^/$|^$state(/|$)" > "$state/mounts" || true
# A cgroup of its own in every hierarchy.
while IFS=: read -r _ names path; do
    case $names in
    "") base=$(findmnt -nt cgroup2 -o TARGET | head -1) ;;
    *) base=$(findmnt -nt cgroup -o TARGET,OPTIONS | awk -v n="$names" '{split($2,o,","); for(i in o) if (o[i]==n) {print $1; exit}}') ;;
    esac
    [ -n "$base" ] || continue
    own=$base/${path#/}/servewright-host
    own=${own//\/\//\/}
    if [ -z "$names" ]; then
        for controller in $(cat "$base/${path#/}/cgroup.controllers"); do echo "+$controller" > "$base/${path#/}/cgroup.subtree_control" 2>/dev/null || true; done
    fi
    mkdir -p "$own"
    if [ "$names" = cpuset ]; then for f in cpuset.cpus cpuset.mems; do cat "$base/$f" > "$own/$f"; done; fi
    echo $$ > "$own/cgroup.procs"
done < /proc/self/cgroup
unshare --pid --mount --uts --ipc --cgroup --fork --kill-child --propagation private /bin/bash -euc '
state=$1 root=$1/root
hostname gpu-host
while read -r point; do
    [ -e "$root$point" ] || continue
    mount --rbind "$point" "$root$point"
done < "$state/mounts"
kinds=$(cat /proc/self/cgroup)
cp -a /dev/nvidia* /dev/dri "$state/tree/" 2>/dev/null || true
cd "$root"
mount -t proc -o nosuid,nodev,noexec proc proc
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
if grep -q "^[1-9]" <<< "$kinds"; then
    mount -t tmpfs -o mode=755,nosuid,nodev,noexec tmpfs sys/fs/cgroup
    for names in $(cut -d: -f2 <<< "$kinds" | grep -v = | grep .); do mkdir sys/fs/cgroup/$names; mount -t cgroup -o $names,nosuid,nodev,noexec cgroup sys/fs/cgroup/$names; done
    mkdir sys/fs/cgroup/systemd sys/fs/cgroup/unified
    mount -t cgroup -o none,name=systemd,nosuid,nodev,noexec cgroup sys/fs/cgroup/systemd
    mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup/unified
else
    mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
fi
mount -t tmpfs -o mode=755,nosuid tmpfs dev
for d in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do set -- $d; mknod -m 666 dev/$1 c $2 $3; done
ln -s /proc/self/fd dev/fd; ln -s pts/ptmx dev/ptmx; for i in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${i%:*} dev/${i#*:}; done
mkdir dev/pts dev/shm dev/mqueue
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs dev/shm
mount -t mqueue mqueue dev/mqueue 2>/dev/null || true
cp -a "$state"/tree/. dev/
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs run
mkdir -p .oldroot; pivot_root . .oldroot; cd /
umount -l /.oldroot; rmdir /.oldroot 2>/dev/null || true
exec env -i container=servewright PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=journal
' _ "$state" &
child=$!
for ((i = 0; i < 100; i++)); do
    pid=$(pgrep -P $child || true)
    [ -n "$pid" ] && break
    sleep 0.1
done
echo "$pid" > "$state/pid"
wait $child
