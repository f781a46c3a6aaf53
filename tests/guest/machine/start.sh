#!/bin/bash
# The first process on the root disk: mount what a node has, unpack the job, run it in /job/out,
# send back what it left there, power off.
export PATH=/usr/local/bin:/usr/bin HOME=/tmp LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for place in /tmp /run /var/lib/kubelet; do mount -t tmpfs tmpfs $place; done
mount -t tmpfs -o mode=755 tmpfs /job
options=$(sed -n 's/.*guest\.cgroup=\([^ ]*\).*/\1/p' /proc/cmdline)
# A second mount would change the options of the first, so they are chosen once.
mount -t cgroup2 ${options:+-o "$options"} cgroup2 /sys/fs/cgroup
[ -b /dev/vdd ] && mount -t ext4 -o noatime /dev/vdd /scratch
mkdir /job/out
tar -xf /dev/vdb -C /job
echo "GUEST: ready after $(cut -d ' ' -f 1 /proc/uptime) s"
mapfile -d '' -t command < /job/command
cd /job/out || exit
timeout -k 5 "${command[@]}" > /job/stdout 2> /job/stderr < /dev/null
echo $? > /job/status
cd /job || exit
tar -cf /dev/vdc status stdout stderr out
sync
echo "GUEST: done"
busybox poweroff -f
