#!/bin/sh
# Boots a second instance of this machine's systemd in new namespaces: machine.sh DIR ROOT PREFIX, as root.
#
# DIR/units has all its units except those of systemd, DIR/etc is its /etc/vdev, and DIR/out is its /opt/out. ROOT, the
# checkout, is its /opt/vdev, and PREFIX, of Python, its /opt/python. Its other writes are not visible outside, and it
# ends with the process that started it.
set -eu
if [ "${4:-}" != inside ]; then
  for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup; do
    [ -e "$hierarchy/cgroup.procs" ] || continue
    own=$hierarchy/vdev-test-$$
    mkdir "$own"
    echo $$ >"$own/cgroup.procs"
    break
  done
  exec unshare --mount --pid --fork --kill-child --ipc --uts --net --cgroup "$0" "$1" "$2" "$3" inside
fi

mount --make-rprivate /
mkdir "$1/scratch"
mount -t tmpfs scratch "$1/scratch"
for place in etc var opt; do
  mkdir "$1/scratch/$place" "$1/scratch/$place.work"
  mount -t overlay -o "lowerdir=/$place,upperdir=$1/scratch/$place,workdir=$1/scratch/$place.work" "$place" "/$place"
done
mkdir -p /opt/out /opt/vdev /opt/python
mount --bind "$1/out" /opt/out
for bound in "$2 /opt/vdev" "$3 /opt/python"; do
  # shellcheck disable=SC2086  # two words
  mount --bind $bound
  mount -o remount,bind,ro "${bound#* }"
done
rm -rf /etc/systemd/system/* /etc/vdev
for place in vdev kubelet; do # not removed, because other programs may write there below the overlay
  mkdir -p "/var/lib/$place"
  mount -t tmpfs -o mode=755 "$place" "/var/lib/$place"
done
mkdir -p /etc/vdev
cp -R "$1/units/." /etc/systemd/system
cp -R "$1/etc/." /etc/vdev
: >/etc/fstab
for wants in sysinit local-fs sockets timers basic multi-user; do
  for unit in "/lib/systemd/system/$wants.target.wants"/*; do
    ln -sf /dev/null "/etc/systemd/system/${unit##*/}"
  done
done
mount -t tmpfs -o mode=755 run /run
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
if [ -d /sys/fs/cgroup/systemd ]; then
  mount -t tmpfs cgroup /sys/fs/cgroup
  mkdir /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
else
  mount -t cgroup2 cgroup /sys/fs/cgroup
fi
systemd=/lib/systemd/systemd
exec env -i container=vdev-test PATH="$PATH" $systemd --system --unit=story.target --show-status=no --log-target=console
