#!/usr/bin/env bash
# The main job on three nodes that ship with the project; each command is one a user would type.
set -u
cd "$(dirname "$0")/nodes" || exit 1
failed=0

show() { # expected exit status, then the command
    local expected=$1 status=0
    shift
    printf '$ %s\n' "$*"
    "$@" || status=$?
    printf 'exit status %d\n\n' "$status"
    [ "$status" -eq "$expected" ] || { echo "expected exit status $expected" >&2; failed=1; }
}

echo "# A reboot moved the kernel image to the other NUMA node; the kubelet has a tolerance:"
show 0 memqos validate-checkpoint --root drifted
echo "# The same node with the exact comparison, as in every kubelet before 1.38:"
show 1 memqos validate-checkpoint --root drifted --drift-tolerance off
echo "# Half of a node's memory is gone:"
show 1 memqos validate-checkpoint --root lost-dimm
echo "# Somebody edited the file:"
show 1 memqos validate-checkpoint --root corrupt
exit "$failed"
