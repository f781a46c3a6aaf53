"""``memqos audit-cgroups``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import click
from attrs import evolve

from memqos.adapters.cgroup_tree import (
    AUDIT_FILES,
    EVENT_FILES,
    CgroupFiles,
    Mount,
    read_meminfo,
    read_mglru,
    read_mount,
    read_tree,
)
from memqos.adapters.files import read_input
from memqos.adapters.host import Host
from memqos.adapters.kubelet_node import read_default_config, read_kubelet_config
from memqos.adapters.node import read_capacity, read_kernel
from memqos.errors import InputError
from memqos.kubelet_config import KubeletConfig
from memqos.manifests import NodeFacts
from memqos.memory_qos.allocatable import Node, node_allocatable
from memqos.memory_qos.audit import AuditedCgroup, Environment, audit, protection_of
from memqos.memory_qos.config import MemoryQOSConfig, resolve_config
from memqos.memory_qos.events import EventDelta, Reading, event_delta, tree_findings
from memqos.memory_qos.findings import FindingCode, Severity
from memqos.memory_qos.identity import Identity, PodNames, names_of_pods
from memqos.memory_qos.paths import Driver, reserved_path
from memqos.memory_qos.plan import KUBE_RESERVED, KUBEPODS, SYSTEM_RESERVED, plan_cgroups
from memqos.memory_qos.tree import (
    PARTITION,
    Matched,
    desired_after_rollback,
    identify,
    match_plan,
    pods_of_node,
)
from memqos.pods import Pod
from memqos_cli.cgroup_options import (
    Part,
    is_below,
    part_options,
    read_capture,
    reading_of,
    sizes_of,
)
from memqos_cli.exit_codes import NO, YES
from memqos_cli.node_options import choose_node, node_options
from memqos_cli.options import (
    KubeletVersion,
    cgroup_root_option,
    debug_option,
    output_option,
    page_size_option,
    require_one_stdin,
    root_option,
)
from memqos_cli.output import audit_report
from memqos_cli.output.terminal import note, write


__all__ = ["command"]

_SEVERITIES = [str(severity) for severity in Severity]
_FILE = click.Path(readable=False, allow_dash=True)


@click.command()
@root_option
@cgroup_root_option
@click.option("--kubelet-config", type=_FILE, metavar="FILE", help="KubeletConfiguration.")
@part_options
@click.option(
    "--kubelet-version",
    type=KubeletVersion(),
    default="1.37",
    show_default=True,
    help="The release whose rules apply.",
)
@node_options
@page_size_option
@click.option(
    "--memory-recursiveprot/--no-memory-recursiveprot",
    "recursive",
    default=None,
    help="The mount option.  [default: read from the mount]",
)
@click.option("--kernel", metavar="RELEASE", help="The node's kernel.  [default: of the root]")
@click.option("--rollback", is_flag=True, help="Memory QoS was turned off: what is left?")
@click.option(
    "--before",
    type=click.Path(readable=False),
    metavar="DIR|TAR",
    help="An earlier capture of the tree: judge what its counters did since.",
)
@click.option(
    "--severity",
    type=click.Choice(_SEVERITIES),
    default="warning",
    show_default=True,
    help="Exit 1 from this severity on.",
)
@output_option("prometheus")
@debug_option
def command(
    host: Host,
    cgroup_root: str | None,
    kubelet_config: str | None,
    pods: str | None,
    pod: str | None,
    container: str | None,
    pid: int | None,
    kubelet_version: int,
    node_file: str | None,
    capacity: NodeFacts | None,
    page_size: int,
    recursive: bool | None,
    kernel: str | None,
    rollback: bool,
    before: str | None,
    severity: str,
    output: str,
) -> None:
    """Compare a live cgroup tree with what kubelet should have written, and with what it is worth.

    With --pods every value is compared with the plan for those of these pods that are this
    node's, which --node tells for sure. Without, the tree speaks for itself: protection that an
    ancestor makes void, over-commitment, min equal to max, values that contradict one another,
    pressure. --rollback tells what is left after Memory QoS was turned off, whether it is still
    in force, and what clears it. --before adds what throttling and OOM kills did since. Writes
    nothing.

    \b
    Examples:
      kubectl get pods -A -o json | memqos audit-cgroups --pods -
      memqos audit-cgroups --rollback
      memqos audit-cgroups --before yesterday.tar --pod default/web
    """
    part = Part(pods_file=pods, pod=pod, container=container, pid=pid)
    part.check()
    require_one_stdin(pods, kubelet_config, node_file)
    if rollback and before is not None:
        raise click.UsageError("--rollback looks at what is there now: it has no use for --before")
    if cgroup_root is None:
        host.check()
    mount = read_mount(host, root=cgroup_root)
    if recursive is None:
        recursive = mount.recursive
    is_v2 = mount.version != 1
    files = AUDIT_FILES if before is None else {*AUDIT_FILES, *EVENT_FILES}
    tree = list(_read(host, cgroup_root, mount, files)) if is_v2 else []
    identities = identify(cgroup.path for cgroup in tree)
    names, listed = part.names(host, cgroup_root)
    facts = choose_node(node_file, capacity, own=None if cgroup_root else _facts(host))
    known = pods_of_node(listed, identities, facts.name)
    tops = part.tops(host, identities, names) if is_v2 else None
    kubelet = _config(host, cgroup_root, kubelet_config)
    if rollback and kubelet is None:
        kubelet = KubeletConfig(feature_gates={"MemoryQoS": False})
    config = resolve_config(kubelet or KubeletConfig(), minor=kubelet_version)
    node = Node(
        capacity_bytes=facts.capacity_bytes,
        page_size=page_size,
        # Without swap it does not matter whether the runtime wrote memory.swap.max.
        swap_controller=bool(facts.swap_bytes) or None,
        swap_capacity_bytes=facts.swap_bytes or 0,
        hugepage_bytes=facts.hugepage_bytes or 0,
    )
    environment = _environment(mount, config, node)
    environment = evolve(
        environment,
        recursive=recursive,
        kernel=kernel or facts.kernel,
        mglru=None if cgroup_root else read_mglru(host),
    )
    wanted = _wanted(tree, identities, known, config, node, rollback=rollback, pods=pods)
    cgroups = _audited(tree, wanted, config, node)
    events = tree_findings(_deltas(tree, before, mount)) if is_v2 and not rollback else ()
    protected = protection_of(cgroups, environment)
    findings = list(audit(cgroups, environment, events, protected))
    if rollback:
        findings = [
            item
            for item in findings
            if item.code.startswith("stale-")
            or item.code in (FindingCode.CGROUP_V1, FindingCode.CGROUP_HYBRID)
            or (item.code is FindingCode.MIN_EQUALS_MAX and item.severity is Severity.WARNING)
        ]
    if tops is not None:
        findings = [item for item in findings if item.path is None or is_below(item.path, tops)]
        protected = {path: item for path, item in protected.items() if is_below(path, tops)}
    report = audit_report.AuditReport(
        kubelet_minor=kubelet_version,
        cgroup_version=mount.version,
        recursive=recursive,
        findings=tuple(findings),
        protected=protected,
        labels=_labels(identities, names, wanted),
        count=len(cgroups) if tops is None else len(protected),
        rollback=rollback,
    )
    write(audit_report.render(report, output))
    if rollback and (config.tiered or (config.enabled and config.factor is not None)):
        note("the kubelet configuration still has Memory QoS on, so this is no rollback")
    if listed and not known and facts.name is None:
        note(f"none of the pods of {pods} is in the tree; --node tells which are this node's")
    elif len(known) < len(listed):
        note(f"left out {len(listed) - len(known)} pods of {pods} that are not on this node")
    for text in _notes(pods, identities, names_of_pods(known), rollback=rollback):
        note(text)
    lowest = _SEVERITIES.index(severity)
    bad = any(_SEVERITIES.index(finding.severity) >= lowest for finding in findings)
    click.get_current_context().exit(NO if bad else YES)


def _read(
    host: Host, root: str | None, mount: Mount, files: Collection[str]
) -> Iterable[CgroupFiles]:
    if mount.version is None:
        raise InputError(
            "no cgroup2 mount and no cgroup tree", source=host.display("sys/fs/cgroup")
        )
    return read_tree(host, files, root=root)


def _config(host: Host, cgroup_root: str | None, name: str | None) -> KubeletConfig | None:
    if name is not None:
        return read_kubelet_config(read_input(name), name)
    return None if cgroup_root is not None else read_default_config(host)


def _facts(host: Host) -> NodeFacts:
    return NodeFacts(
        capacity_bytes=read_capacity(host),
        swap_bytes=read_meminfo(host, "SwapTotal"),
        hugepage_bytes=read_meminfo(host, "Hugetlb"),
        kernel=read_kernel(host),
    )


def _environment(mount: Mount, config: MemoryQOSConfig, node: Node) -> Environment:
    allocatable = node_allocatable(config, node)
    return Environment(
        cgroup_version=1 if mount.version == 1 else 2,
        hybrid=mount.hybrid,
        page_size=node.page_size,
        allocatable_absolute=allocatable.absolute,
        allocatable_status=allocatable.status,
        capacity=node.capacity_bytes,
        kubelet_minor=config.minor,
        gate_on=config.enabled,
    )


def _wanted(
    tree: list[CgroupFiles],
    identities: Mapping[str, Identity],
    known: tuple[Pod, ...],
    config: MemoryQOSConfig,
    node: Node,
    *,
    rollback: bool,
    pods: str | None,
) -> Matched:
    """Return what should be there: by the plan for pods, or after a rollback, or nothing."""
    systemd = any(path.endswith("kubepods.slice") for path in identities)
    driver = Driver.SYSTEMD if systemd else Driver.CGROUPFS
    wanted = Matched({path: item.role for path, item in identities.items()}, {}, {})
    if pods is not None:
        ids = {
            container_id: f"container:{pod.path}/{name}"
            for pod in known
            for name, container_id in pod.container_ids
        }
        wanted = match_plan(identities, plan_cgroups(config, node, known, driver), known, ids)
    if not rollback:
        return wanted
    reserved = {
        f"/{reserved_path(cgroup, driver)}": role
        for role, cgroup in (
            (SYSTEM_RESERVED, config.kubelet.system_reserved_cgroup),
            (KUBE_RESERVED, config.kubelet.kube_reserved_cgroup),
        )
        if cgroup
    }
    roles = {path: reserved.get(path, item.role) for path, item in identities.items()}
    files = {item.path: item.files for item in tree}
    return Matched(roles, desired_after_rollback(identities, files, reserved), {})


def _audited(
    tree: list[CgroupFiles], wanted: Matched, config: MemoryQOSConfig, node: Node
) -> list[AuditedCgroup]:
    partition = any(role.startswith(PARTITION) for role in wanted.roles.values())
    cgroups = []
    for item in tree:
        if item.path != "/":
            role = wanted.roles.get(item.path, "")
            cgroups.append(
                AuditedCgroup(
                    path=item.path,
                    role=role,
                    desired=wanted.desired.get(item.path),
                    actual={name: text.strip() for name, text in item.files.items()},
                    usage=sizes_of(item).get("memory.current"),
                    unjudged=_unjudged(role, wanted, item.path, config, node, partition=partition),
                )
            )
    cgroups += [
        AuditedCgroup(path=path, role=role, desired={"memory.min": "0"}, actual=None)
        for role, path in wanted.missing.items()
        if config.kubelet.cgroups_per_qos
    ]
    return cgroups


def _unjudged(
    role: str,
    wanted: Matched,
    path: str,
    config: MemoryQOSConfig,
    node: Node,
    *,
    partition: bool,
) -> Collection[str]:
    """Name the files of which nobody can tell what they should be."""
    found = set()
    if node.capacity_bytes is None:
        if role == KUBEPODS:
            found.add("memory.max")
        # Without a limit memory.high comes from what the node can allocate.
        if config.factor is not None and "memory.high" not in wanted.desired.get(path, {}):
            found.add("memory.high")
    if partition and role.startswith("qos:"):
        found.add("memory.low")
    if not role.startswith("container:") or not node.swap_controller:
        found.add("memory.swap.max")
    return found


def _deltas(tree: list[CgroupFiles], before: str | None, mount: Mount) -> Mapping[str, EventDelta]:
    """Compare with an earlier capture; without one, only pressure is known."""
    now = {
        item.path: reading_of(item, local_events=mount.is_local, capture=True)
        for item in tree
        if item.path != "/"
    }
    if before is None:
        return {
            path: event_delta(Reading(), Reading(pressure=item.pressure))
            for path, item in now.items()
            if item.pressure is not None and item.pressure.full and item.pressure.full.avg10
        }
    host, root = read_capture(before)
    old = {
        item.path: reading_of(item, local_events=mount.is_local, capture=True)
        for item in read_tree(host, EVENT_FILES, root=root)
    }
    return {path: event_delta(old.get(path), item) for path, item in now.items()}


def _labels(
    identities: Mapping[str, Identity], names: PodNames, wanted: Matched
) -> Mapping[str, str]:
    found = {path: names.label(item) for path, item in identities.items()}
    found |= {
        path: role.partition(":")[2].partition("/")[2] for role, path in wanted.missing.items()
    }
    return {path: label for path, label in found.items() if label}


def _notes(
    pods: str | None,
    identities: Mapping[str, Identity],
    names: PodNames,
    *,
    rollback: bool,
) -> Iterable[str]:
    if pods is None:
        if not rollback:
            yield "no --pods: only what the tree itself shows is judged"
        return
    unknown = {item.uid for item in identities.values() if item.uid} - set(names.pods)
    if unknown:
        yield f"{len(unknown)} pods of the tree are not in {pods}, and not compared"
