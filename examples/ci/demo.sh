#!/usr/bin/env bash
# What a pull request that changes kubelet's Memory QoS would be told.
set -u
cd "$(dirname "$0")" || exit 1
failed=0

show() { # expected exit status, then the command
    local expected=$1 status=0
    shift
    printf '$ %s\n' "$*"
    "$@" || status=$?
    printf 'exit status %d\n\n' "$status"
    [ "$status" -eq "$expected" ] || { echo "expected exit status $expected" >&2; failed=1; }
}

echo "# Every memory cgroup file that kubelet writes now:"
show 0 memqos plan-cgroups -f pods.yaml --kubelet-config kubelet.yaml --capacity memory=64Gi -o tree
echo "# What the proposal changes, and when; the build fails, for the database:"
show 1 memqos plan-cgroups -f pods.yaml --kubelet-config kubelet.yaml --capacity memory=64Gi --diff kubelet-next.yaml --fail-on min-equals-max
exit "$failed"
