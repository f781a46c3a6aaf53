#!/bin/bash
# The first process on the root disk: mount what a node has, unpack the job, run it in /job/out,
# send back what it left there, power off. With guest.systemd on the kernel's command line systemd
# becomes the first process, and calls this again with the argument "job".
export PATH=/usr/local/bin:/usr/bin HOME=/tmp LC_ALL=C
if [ "$1" != job ]; then
  mount -t proc proc /proc
  mount -t sysfs sysfs /sys
  mount -t devtmpfs devtmpfs /dev
  for place in /tmp /run /var/lib; do mount -t tmpfs tmpfs $place; done
  mkdir /var/lib/kubelet
  mount -t tmpfs -o mode=755 tmpfs /job
  options=$(sed -n 's/.*guest\.cgroup=\([^ ]*\).*/\1/p' /proc/cmdline)
  # A second mount would change the options of the first, so they are chosen once.
  mount -t cgroup2 ${options:+-o "$options"} cgroup2 /sys/fs/cgroup
  [ -b /dev/vdd ] && mount -t ext4 -o noatime /dev/vdd /scratch
  mkdir /job/out
  tar -xf /dev/vdb -C /job
  if grep -q guest.systemd /proc/cmdline; then
    mkdir -p /run/systemd/system
    printf '%s\n' '[Unit]' 'DefaultDependencies=no' '[Service]' "ExecStart=$0 job" \
      'StandardOutput=tty' > /run/systemd/system/job.service
    exec /lib/systemd/systemd --unit=job.service
  fi
fi
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
