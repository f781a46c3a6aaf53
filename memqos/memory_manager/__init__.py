"""kubelet's Memory Manager: its checkpoint, its start validation, its drift tolerance (KEP-6232).

| module | rule |
| --- | --- |
| `checkpoint` | which of the formats v1, v2, v3 a kubelet reads, and how it decodes them |
| `checksum` | the go-spew dump and its FNV-1a hash |
| `encoding` | the file as kubelet writes it |
| `machine` | NUMA nodes of a machine, and the machine state of an idle one |
| `reserved` | the checks of `reservedMemory` |
| `options` | `memory-drift-tolerance` to a bound in bytes |
| `iomem` | the kernel image's span |
| `assignments` | re-deriving what containers hold |
| `comparison` | exact comparison, and KEP-6232's tolerant one |
| `validation` | the start as a whole: one verdict with its reason |
| `metrics` | the two kubelet gauges |
"""
