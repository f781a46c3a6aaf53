"""The audit: desired cgroup files against actual ones, and what the actual ones are worth.

"The gate is on" proves nothing; values, the ancestors' sums and the deltas under load do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from attrs import frozen

from memqos.cgroup import MAX, parse_size
from memqos.errors import InputError
from memqos.memory_qos.environment import MINIMUM_KERNEL, kernel_version
from memqos.memory_qos.findings import Finding, FindingCode, Severity
from memqos.memory_qos.plan import (
    BESTEFFORT,
    BURSTABLE,
    KUBE_RESERVED,
    KUBEPODS,
    SYSTEM_RESERVED,
    page_floor,
)
from memqos.memory_qos.protection import (
    CgroupMemory,
    Protected,
    effective_protection,
    parent_of,
)
from memqos.memory_qos.transition import KERNEL_DEFAULTS


__all__ = ["AuditedCgroup", "Environment", "audit", "cleared_by", "protection_of"]

_PROTECTION = ("memory.min", "memory.low")
_QOS = (*_PROTECTION, "memory.high")
_OOM_GROUP = "memory.oom.group"
_RESERVED = (SYSTEM_RESERVED, KUBE_RESERVED)
_DEFAULT_SIZES = {file: parse_size(text) for file, text in KERNEL_DEFAULTS.items()}
_BETA = 37  # Memory QoS of kubelet 1.37
_SIZES = ("memory.min", "memory.low", "memory.high", "memory.max", "memory.swap.max")


@frozen(kw_only=True)
class Environment:
    """The node.

    Attributes:
        cgroup_version: 1 or 2.
        hybrid: cgroup v1 with a cgroup2 mount beside it.
        kernel: its release, None if unknown.
        page_size: bytes.
        recursive: mount option memory_recursiveprot; None if unknown, and then taken as set.
        allocatable_absolute: bytes, None if unknown.
        allocatable_status: what ``kubectl get node`` shows; bytes, None if unknown.
        capacity: MemTotal in bytes, None if unknown.
        mglru: whether the multi-generational LRU is on, None if unknown.
        kubelet_minor: NN of kubelet 1.NN, for what clears what is left over.
        gate_on: whether Memory QoS is on, None if unknown; for the same.
    """

    cgroup_version: int = 2
    hybrid: bool = False
    kernel: str | None = None
    page_size: int = 4096
    recursive: bool | None = None
    allocatable_absolute: int | None = None
    allocatable_status: int | None = None
    capacity: int | None = None
    mglru: bool | None = None
    kubelet_minor: int = 37
    gate_on: bool | None = None


@frozen(kw_only=True)
class AuditedCgroup:
    """One cgroup of the node.

    Attributes:
        path: absolute within the mount.
        role: as plans name it (``kubepods``, ``pod:…``), or empty for one that is not kubelet's.
        desired: the files that kubelet writes; None where nothing is known to be desired.
        actual: the files as read; None where the directory is missing.
        usage: memory.current in bytes, None if unknown.
        complete: whether all of its children are known.
        unjudged: files of which it is not known what they should be.
    """

    path: str
    role: str
    desired: Mapping[str, str] | None
    actual: Mapping[str, str] | None
    usage: int | None = None
    complete: bool = True
    unjudged: Collection[str] = ()

    @property
    def parent(self) -> str:
        """The path of the cgroup above."""
        return parent_of(self.path)

    def size(self, file: str) -> int:
        """Return the actual value of a file in bytes, the kernel's default if it is absent."""
        text = None if self.actual is None else self.actual.get(file)
        if text is None:
            return _DEFAULT_SIZES[file]
        try:
            return parse_size(text)
        except InputError:
            return _DEFAULT_SIZES[file]


def protection_of(
    cgroups: Iterable[AuditedCgroup], environment: Environment
) -> Mapping[str, Protected]:
    """Work out effective protection under global pressure, by path.

    A cgroup whose usage is not known is taken to use all that it claims.
    """
    every = tuple(cgroups)
    inner = _children(every)
    memory = [
        CgroupMemory(
            cgroup.path,
            _claim(cgroup, inner) if cgroup.usage is None else cgroup.usage,
            cgroup.size("memory.min"),
            cgroup.size("memory.low"),
        )
        for cgroup in every
    ]
    found = effective_protection(
        memory, recursive=environment.recursive is not False, page_size=environment.page_size
    )
    return {item.cgroup.path: item for item in found}


Children: TypeAlias = "Mapping[str, list[AuditedCgroup]]"


def _children(every: Iterable[AuditedCgroup]) -> Children:
    found: dict[str, list[AuditedCgroup]] = {}
    for cgroup in every:
        found.setdefault(cgroup.parent, []).append(cgroup)
    return found


def _claim(cgroup: AuditedCgroup, children: Children) -> int:
    own = max(cgroup.size("memory.min"), cgroup.size("memory.low"))
    inner = sum(_claim(child, children) for child in children.get(cgroup.path, ()))
    return max(own if own < MAX else 0, inner)


def audit(
    cgroups: Iterable[AuditedCgroup],
    environment: Environment,
    events: Iterable[Finding] = (),
    protected: Mapping[str, Protected] | None = None,
) -> Iterator[Finding]:
    """Yield what is wrong with a node's cgroups, or merely notable.

    Args:
        cgroups: all of them, kubelet's and others; parents before children.
        environment: the node.
        events: what `tree_findings` found between two readings; passed on.
        protected: what `protection_of` gives for them, if it is known already.
    """
    if environment.cgroup_version != 2:
        code = FindingCode.CGROUP_HYBRID if environment.hybrid else FindingCode.CGROUP_V1
        yield Finding(
            code=code,
            severity=Severity.ERROR,
            message="the memory controller is on cgroup v1, where Memory QoS has no effect",
            remedy="boot with systemd.unified_cgroup_hierarchy=1",
        )
        return
    every = tuple(cgroups)
    protected = protection_of(every, environment) if protected is None else protected
    known = {cgroup.path: cgroup for cgroup in every}
    children = _children(every)
    found: list[Finding] = []
    for cgroup in every:
        found += _values(cgroup, protected.get(cgroup.path), environment)
        if cgroup.actual is not None:
            inner = children.get(cgroup.path, [])
            found += _ineffective(cgroup, protected, known, environment)
            found += _shape(cgroup)
            found += _full_of_min(cgroup, known, children)
            found += _overcommit(cgroup, inner, environment)
            found += _leak(cgroup, protected)
    found += events
    yield from _environment(every, found, protected, children, environment)
    yield from found


def _environment(
    every: tuple[AuditedCgroup, ...],
    found: list[Finding],
    protected: Mapping[str, Protected],
    children: Children,
    environment: Environment,
) -> Iterator[Finding]:
    version = None if environment.kernel is None else kernel_version(environment.kernel)
    if version is not None and version < MINIMUM_KERNEL:
        yield _old_kernel(every, found, environment)
    void = any(finding.code is FindingCode.INEFFECTIVE_ANCESTOR for finding in found)
    protects = any(cgroup.size(file) for cgroup in every for file in _PROTECTION)
    if environment.recursive is False and protects and not void:
        relying = [cgroup.path for cgroup in every if _relies_on_parent(cgroup, children)]
        yield Finding(
            code=FindingCode.RECURSIVEPROT_MISSING,
            severity=Severity.WARNING if relying else Severity.INFO,
            message="cgroup2 is mounted without memory_recursiveprot: a cgroup that has no value "
            "of its own gets nothing of what its parent holds"
            + (f", as below {relying[0]} and {len(relying) - 1} more" if relying else ""),
            remedy="mount -o remount,nsdelegate,memory_recursiveprot none /sys/fs/cgroup",
        )
    if environment.mglru and any(item.effective_low for item in protected.values()):
        yield Finding(
            code=FindingCode.LOW_NOT_FLOOR,
            severity=Severity.INFO,
            message="the multi-generational LRU is on: memory.min holds, memory.low is no floor",
            remedy="count on memory.min only, or write 0 to /sys/kernel/mm/lru_gen/enabled",
        )
    top = sum(cgroup.size("memory.min") for cgroup in every if cgroup.path.count("/") == 1)
    if environment.capacity is not None and top > environment.capacity:
        yield Finding(
            code=FindingCode.PROTECTION_EXCEEDS_ALLOCATABLE,
            severity=Severity.ERROR,
            file="memory.min",
            expected=str(environment.capacity),
            actual=str(top),
            message=f"the top-level cgroups' memory.min is {top} bytes together, more than the "
            f"{environment.capacity} the machine has",
            remedy="lower what is reserved, or move pods away",
        )


def _old_kernel(
    every: tuple[AuditedCgroup, ...], found: list[Finding], environment: Environment
) -> Finding:
    finite = any(
        cgroup.size("memory.high") < MAX
        or (cgroup.desired or {}).get("memory.high", "max") != "max"
        for cgroup in every
    )
    throttled = any(
        finding.code in (FindingCode.THROTTLED, FindingCode.LIVELOCK_SUSPECTED)
        for finding in found
    )
    severity = Severity.WARNING if finite else Severity.INFO
    return Finding(
        code=FindingCode.KERNEL_LIVELOCK,
        severity=Severity.ERROR if throttled else severity,
        message=f"memory.high can livelock processes on kernel {environment.kernel}; 5.9 is "
        "the first without it (back-ports are not recognised)",
        actual=environment.kernel,
        remedy="take a newer kernel, or leave memoryThrottlingFactor unset",
    )


def _relies_on_parent(cgroup: AuditedCgroup, children: Children) -> bool:
    """Tell whether all that a pod or container uses is in children without values of their own.

    crun's ``container`` below its scope is such, and containers older than the policy.
    """
    if not cgroup.role.startswith(("pod:", "container:")):
        return False
    inner = children.get(cgroup.path, [])
    return any(child.usage for child in inner) and any(
        cgroup.size(file) and not any(child.size(file) for child in inner) for file in _PROTECTION
    )


def _values(
    cgroup: AuditedCgroup, protected: Protected | None, environment: Environment
) -> Iterator[Finding]:
    desired, actual = cgroup.desired, cgroup.actual
    if desired is None:
        return
    if actual is None:
        if desired:
            yield Finding(
                code=FindingCode.CGROUP_MISSING,
                severity=Severity.ERROR,
                path=cgroup.path,
                message="the cgroup does not exist",
                remedy="is the pod on this node, and running? if so, see kubelet's log",
            )
        return
    floors = {
        file: KERNEL_DEFAULTS[file]
        if desired.get(file) is None
        else page_floor(desired[file], environment.page_size)
        for file in _SIZES
    }
    written = [file for file in _QOS if floors[file] != KERNEL_DEFAULTS[file]]
    none_written = all(actual.get(file, "").strip() == KERNEL_DEFAULTS[file] for file in written)
    for file in _SIZES:
        if file in cgroup.unjudged:
            continue
        wanted, got = desired.get(file), actual.get(file)
        default, floored = KERNEL_DEFAULTS[file], floors[file]
        if got is None:
            if wanted is not None:
                yield Finding(
                    code=FindingCode.FILE_MISSING,
                    severity=Severity.ERROR,
                    path=cgroup.path,
                    file=file,
                    expected=wanted,
                    message=f"there is no {file}",
                    remedy="enable the memory controller in the parents' cgroup.subtree_control",
                )
            continue
        got = got.strip()
        if got == floored:
            continue
        if floored == default:
            yield from _stale(cgroup, file, wanted, got, protected, environment)
        elif got == default:
            remedy = _when_missing(cgroup, none_written=none_written and len(written) > 1)
            yield _wrong(cgroup, file, wanted, got, remedy)
        else:
            yield _wrong(cgroup, file, wanted, got, _when_different(cgroup))
    wanted, got = (files.get(_OOM_GROUP) for files in (desired, actual))
    if wanted is not None and got is not None and got.strip() != wanted:
        remedy = "see singleProcessOOMKill in kubelet's configuration; restart the container"
        yield _wrong(cgroup, _OOM_GROUP, wanted, got.strip(), remedy)


def _wrong(cgroup: AuditedCgroup, file: str, wanted: str | None, got: str, remedy: str) -> Finding:
    is_default = got == KERNEL_DEFAULTS[file]
    shown = f"the kernel's default, {got}" if is_default else got
    return Finding(
        code=FindingCode.VALUE_MISSING if is_default else FindingCode.VALUE_DIFFERS,
        severity=Severity.ERROR,
        path=cgroup.path,
        file=file,
        expected=wanted,
        actual=got,
        message=f"{file} should be {wanted} and is {shown}",
        remedy=remedy,
    )


def _when_missing(cgroup: AuditedCgroup, *, none_written: bool) -> str:
    kind = cgroup.role.partition(":")[0]
    if kind == "container":
        if none_written:
            return (
                "its runtime writes none of them: containerd from 1.6, CRI-O from 1.22 on do; or "
                "it is older than the setting: restart it"
            )
        return "restart the container; CRI-O before March 2026 writes nothing on a resize"
    if kind == "pod":
        return (
            "recreate the pod: kubelet writes a pod's cgroup when it makes it, so a pod older "
            "than the policy stays without (kubernetes/kubernetes#137674)"
        )
    return "kubelet writes it at its start and each minute: see its log"


def _when_different(cgroup: AuditedCgroup) -> str:
    kind = cgroup.role.partition(":")[0]
    if kind == "container":
        return "another configuration or a resize since: restart the container"
    if kind == "pod":
        return (
            "a resize of requests alone leaves it (kubernetes/kubernetes#140262): recreate the pod"
        )
    return (
        "is this kubelet's configuration? if so, another writer: systemd puts its own values back "
        "(systemctl show -p MemoryMin -p MemoryLow -p MemoryMax)"
    )


def _stale(
    cgroup: AuditedCgroup,
    file: str,
    wanted: str | None,
    got: str,
    protected: Protected | None,
    environment: Environment,
) -> Iterator[Finding]:
    """Judge a value that is there although none is wanted."""
    kind = cgroup.role.partition(":")[0]
    common = {"path": cgroup.path, "file": file, "expected": wanted, "actual": got}
    if file == "memory.high" and kind in ("container", "pod"):
        yield Finding(
            code=FindingCode.STALE_HIGH,
            severity=Severity.WARNING,
            message=f"memory.high {got} is left from an earlier configuration and still throttles",
            remedy=cleared_by(cgroup.role, file, environment),
            **common,
        )
        return
    if file not in _PROTECTION or cgroup.role == BESTEFFORT:
        yield Finding(
            code=FindingCode.UNEXPECTED,
            severity=Severity.WARNING,
            message=f"{file} is {got}; kubelet writes none here, somebody else did",
            remedy=f"find the writer, or write {KERNEL_DEFAULTS[file]} there",
            **common,
        )
        return
    effective = None
    if protected is not None:
        is_min = file == "memory.min"
        effective = protected.effective_min if is_min else protected.effective_low
    if effective:
        reserved = cgroup.role in _RESERVED
        yield Finding(
            code=FindingCode.STALE_PROTECTION_EFFECTIVE,
            severity=Severity.WARNING if reserved else Severity.ERROR,
            message=f"{file} {got} is left from an earlier configuration and still protects "
            f"{effective} bytes",
            remedy=cleared_by(cgroup.role, file, environment),
            **common,
        )
    else:
        yield Finding(
            code=FindingCode.STALE_PROTECTION_NEUTRAL,
            severity=Severity.INFO,
            message=f"{file} {got} is left from an earlier configuration and protects nothing, "
            + ("as nothing is in use" if effective is None else "as an ancestor has none")
            + (
                "; when its pod meets its own limit it still counts" if kind == "container" else ""
            ),
            remedy=cleared_by(cgroup.role, file, environment),
            **common,
        )


def cleared_by(role: str, file: str, environment: Environment) -> str:
    """Say what clears a value that an earlier configuration left.

    Args:
        role: the cgroup's.
        file: memory.min, memory.low or memory.high.
        environment: which kubelet runs now.
    """
    kind = role.partition(":")[0]
    beta = environment.kubelet_minor >= _BETA
    if kind == "container":
        # With the gate off a resize carries memory.high=max and neither of the others.
        if (file == "memory.high" and beta) or (file != "memory.high" and environment.gate_on):
            return "restart, or resize (CRI-O: since 2026-03)"
        return "restart"
    if kind == "pod":
        return "a new pod"
    if role in (KUBEPODS, BURSTABLE):
        if environment.gate_on and (beta or (role, file) != (KUBEPODS, "memory.low")):
            return "kubelet, within a minute"
        if beta:
            return "kubelet's start"
        return "nothing (kubelet 1.36): write 0 there"
    if role in _RESERVED:
        return "nothing: write 0 there"
    return "whoever wrote it"


def _ineffective(
    cgroup: AuditedCgroup,
    protected: Mapping[str, Protected],
    known: Mapping[str, AuditedCgroup],
    environment: Environment,
) -> Iterator[Finding]:
    item = protected.get(cgroup.path)
    for file in _PROTECTION:
        # Where nothing is known to be desired, only a value that is worth nothing is told.
        unplanned = cgroup.desired is None and cgroup.role != ""
        wanted = "?" if unplanned else (cgroup.desired or {}).get(file, "0")
        setting = cgroup.size(file) // environment.page_size * environment.page_size
        if item is None or wanted in ("0", "max") or not setting:
            continue
        is_min = file == "memory.min"
        effective = item.effective_min if is_min else item.effective_low
        claim = item.claimed_min if is_min else item.claimed_low
        if effective is None or effective >= claim or (unplanned and effective):
            continue
        ancestor = cgroup.parent
        # Up to the first one that is too small for this claim alone, or has nothing itself.
        while ancestor in known and known[ancestor].size(file) >= claim:
            ancestor = known[ancestor].parent
        if ancestor not in known:  # each is large enough, but its siblings claim as well
            ancestor = cgroup.parent
        short = known[ancestor].size(file) if ancestor in known else 0
        yield Finding(
            code=FindingCode.INEFFECTIVE_ANCESTOR,
            severity=Severity.ERROR,
            path=cgroup.path,
            file=file,
            expected=str(claim),
            actual=str(effective),
            ancestor=ancestor,
            message=f"{file} {setting} is worth {effective} of the {claim} bytes it claims: "
            f"{ancestor} has {short}",
            remedy=_above(known.get(ancestor), file),
        )


def _above(ancestor: AuditedCgroup | None, file: str) -> str:
    role = "" if ancestor is None else ancestor.role
    if role == KUBEPODS and file == "memory.low":
        return (
            "kubelet 1.36 never writes kubepods' memory.low (kubernetes/kubernetes#140267): 1.37"
        )
    if role in (KUBEPODS, BURSTABLE):
        return "TieredReservation has kubelet write it; is it set, and the gate on?"
    if role.startswith("pod:"):
        return "recreate the pod: kubelet writes its cgroup only when it makes it"
    return f"write {file} there: kubelet does not, such as above a cgroupRoot"


def _shape(cgroup: AuditedCgroup) -> Iterator[Finding]:
    """Judge a cgroup's values against one another."""
    low, minimum = cgroup.size("memory.low"), cgroup.size("memory.min")
    high, limit = cgroup.size("memory.high"), cgroup.size("memory.max")
    if limit <= high < MAX:
        yield Finding(
            code=FindingCode.HIGH_NOT_BELOW_MAX,
            severity=Severity.INFO,
            path=cgroup.path,
            file="memory.high",
            actual=str(high),
            message=f"memory.high {high} is not below memory.max {limit}: nothing is throttled "
            "before the limit",
            remedy="a memoryThrottlingFactor below 1",
        )
    if high < max(low, minimum):
        yield Finding(
            code=FindingCode.HIGH_BELOW_PROTECTION,
            severity=Severity.ERROR,
            path=cgroup.path,
            file="memory.high",
            actual=str(high),
            message=f"memory.high {high} throttles inside the protected {max(low, minimum)} bytes",
            remedy="raise memory.high above the request, or restart what holds the old value",
        )


def _full_of_min(
    cgroup: AuditedCgroup, known: Mapping[str, AuditedCgroup], children: Children
) -> Iterator[Finding]:
    """Judge whether reclaim for a limit finds everything protected, page cache included.

    What counts is not the cgroup's own memory.min, which does not protect it from its own limit,
    but its children's. Where they are not known, equal values are taken to mean it.
    """
    minimum, limit = cgroup.size("memory.min"), cgroup.size("memory.max")
    if limit >= MAX:
        return
    inner = children.get(cgroup.path, [])
    claims = sum(child.size("memory.min") for child in inner)
    in_pod = cgroup.role.startswith(("pod:", "container:"))
    if inner and claims >= limit and (in_pod or minimum == limit):
        yield Finding(
            code=FindingCode.MIN_EQUALS_MAX,
            severity=Severity.WARNING,
            path=cgroup.path,
            file="memory.min",
            expected=str(limit),
            actual=str(claims),
            message=f"the children's memory.min ({claims}) reaches memory.max ({limit}): page "
            "cache cannot be reclaimed for this limit, and filling it ends in an OOM kill",
            remedy=_ROOM,
        )
    elif minimum == limit and minimum:
        above = known.get(cgroup.parent)
        room = above is not None and above.size("memory.max") > sum(
            child.size("memory.min") for child in children.get(above.path, [])
        )
        alone = cgroup.role.startswith("container:") and above is not None and room
        harmless = bool(inner) or alone
        yield Finding(
            code=FindingCode.MIN_EQUALS_MAX,
            severity=Severity.INFO if harmless else Severity.WARNING,
            path=cgroup.path,
            file="memory.min",
            expected=str(limit),
            actual=str(minimum),
            message=f"memory.min equals memory.max ({minimum}): "
            + (
                "an ancestor's reclaim gets nothing of it; its own limit still reclaims"
                if harmless
                else "page cache cannot be reclaimed where the pod meets its limit first, and "
                "filling it ends in an OOM kill"
            ),
            remedy=None if harmless else _ROOM,
        )


_ROOM = "leave room: a request below the limit (Burstable), or RuntimeClass overhead"


def _overcommit(
    cgroup: AuditedCgroup, inner: list[AuditedCgroup], environment: Environment
) -> Iterator[Finding]:
    for file in _PROTECTION:
        own = cgroup.size(file)
        children = sum(child.size(file) for child in inner)
        if cgroup.complete and own and children > own:
            yield Finding(
                code=FindingCode.PROTECTION_OVERCOMMIT,
                severity=Severity.WARNING,
                path=cgroup.path,
                file=file,
                expected=str(children),
                actual=str(own),
                message=f"its {len(inner)} children claim {children} bytes of {file}, it has "
                f"{own}: each gets its share only",
                remedy=f"raise {file} here to what the children claim",
            )
    if cgroup.role == KUBEPODS:
        own = cgroup.size("memory.min")
        absolute, status = environment.allocatable_absolute, environment.allocatable_status
        if absolute is not None and status is not None and own > min(absolute, status):
            over = own > absolute
            yield Finding(
                code=FindingCode.PROTECTION_EXCEEDS_ALLOCATABLE,
                severity=Severity.ERROR if over else Severity.WARNING,
                path=cgroup.path,
                file="memory.min",
                expected=str(absolute if over else status),
                actual=str(own),
                message=f"memory.min {own} is more than the {absolute if over else status} bytes "
                "allocatable",
                remedy="move pods away: what they request cannot all be kept",
            )


def _leak(cgroup: AuditedCgroup, protected: Mapping[str, Protected]) -> Iterator[Finding]:
    item = protected.get(cgroup.path)
    if item is None or cgroup.role not in (BURSTABLE, BESTEFFORT):
        return
    effective = item.effective_min or 0
    if cgroup.usage is not None and effective > item.claimed_min:
        best_effort = cgroup.role == BESTEFFORT
        yield Finding(
            code=FindingCode.PROTECTION_LEAK,
            severity=Severity.WARNING if best_effort else Severity.INFO,
            path=cgroup.path,
            file="memory.min",
            expected=str(item.claimed_min),
            actual=str(effective),
            message=f"memory_recursiveprot hands it {effective} bytes of hard protection that its "
            "siblings do not use",
            remedy="by design of kubelet 1.37: kubepods has memory.min for Burstable pods, too",
        )
