"""kubelet's Memory QoS (KEP-2570): which cgroup gets which values.

| module | rule |
| --- | --- |
| `config` | the configuration: gate, factor, policy, what kubelet refuses |
| `allocatable` | node allocatable, and what kubelet bounds with it |
| `throttling` | memory.high |
| `swap` | memory.swap.max |
| `paths` | where the cgroups lie, for both drivers and the runtimes |
| `plan` | every cgroup file and its value |
| `transition` | what a restart, a resize or a roll-back leaves behind |
| `compare` | two plans: what changes when |
| `hazards` | what goes wrong although the values are right |
"""
