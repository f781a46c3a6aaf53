"""``memqos plan-cgroups``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import click
from attrs import evolve

from memqos.adapters.files import read_input
from memqos.adapters.kubelet_node import read_kubelet_config
from memqos.adapters.manifest_files import read_manifests
from memqos.errors import InputError
from memqos.kubelet_config import KubeletConfig
from memqos.manifests import ManifestReader, NodeFacts, Workload
from memqos.memory_qos.allocatable import Node
from memqos.memory_qos.compare import compare_plans
from memqos.memory_qos.config import ConfigErrorCode, MemoryQOSConfig, resolve_config
from memqos.memory_qos.environment import kernel_version
from memqos.memory_qos.hazards import (
    Hazard,
    HazardCode,
    Severity,
    find_change_hazards,
    find_hazards,
)
from memqos.memory_qos.paths import Driver
from memqos.memory_qos.plan import plan_cgroups
from memqos.pods import Pod
from memqos_cli.exit_codes import NO, YES
from memqos_cli.node_options import choose_node, node_options
from memqos_cli.options import (
    KubeletVersion,
    debug_option,
    output_option,
    page_size_option,
    require_one_stdin,
)
from memqos_cli.output import document, plan_report
from memqos_cli.output.terminal import note, write


__all__ = ["command"]

_CODES = sorted(str(code) for code in (*HazardCode, *ConfigErrorCode))
_FIRST_MINOR = 36
_MAX_PODS = 100_000
_SEVERITIES = [str(severity) for severity in Severity]


def _kernel(_ctx: Any, _param: Any, value: str | None) -> str | None:
    if value is not None and kernel_version(value) is None:
        raise click.BadParameter(f"{value!r} is no kernel release such as 6.1.0")
    return value


_FILE = click.Path(readable=False, allow_dash=True)


@click.command()
@click.option(
    "-f",
    "--filename",
    "filenames",
    type=_FILE,
    multiple=True,
    required=True,
    metavar="FILE|DIR|-",
    help="Manifests: YAML or JSON; repeatable, directories recursively.",
)
@click.option("--kubelet-config", type=_FILE, metavar="FILE", help="KubeletConfiguration.")
@node_options
@click.option(
    "--kubelet-version",
    type=KubeletVersion(),
    default="1.37",
    show_default=True,
    help="The release whose rules apply.",
)
@click.option(
    "--cgroup-driver",
    type=click.Choice([str(driver) for driver in Driver]),
    help="For the paths.  [default: of the configuration, else systemd]",
)
@page_size_option
@click.option(
    "--cgroup-version", type=click.IntRange(1, 2), default=2, show_default=True, help="1 or 2."
)
@click.option(
    "--kernel", metavar="RELEASE", callback=_kernel, help="The node's kernel, such as 5.4.0."
)
@click.option(
    "--replicas/--per-workload",
    default=False,
    help="Put every replica on the node, or one pod a workload.  [default: per workload]",
)
@click.option("--diff", type=_FILE, metavar="FILE", help="Compare with another configuration.")
@click.option(
    "--diff-version", type=KubeletVersion(), metavar="1.NN", help="Compare with another release."
)
@click.option(
    "--fail-on",
    type=click.Choice([*_CODES, *_SEVERITIES]),
    multiple=True,
    metavar="CODE|SEVERITY",
    help="Exit 1 on this warning, or from this severity on; repeatable.",
)
@click.option("--strict", is_flag=True, help="Kinds that memqos does not know are an error.")
@output_option("tree", "table", "junit", "sarif", "github")
@debug_option
def command(
    filenames: tuple[str, ...],
    kubelet_config: str | None,
    node_file: str | None,
    capacity: NodeFacts | None,
    kubelet_version: int,
    cgroup_driver: str | None,
    page_size: int,
    cgroup_version: int,
    kernel: str | None,
    replicas: bool,
    diff: str | None,
    diff_version: int | None,
    fail_on: tuple[str, ...],
    strict: bool,
    output: str,
) -> None:
    """Show what kubelet writes into every memory cgroup for these manifests, before it does.

    Pods of every workload kind are planned as the API server stores them; LimitRange,
    RuntimeClass and Node objects among the manifests are used. With --diff or --diff-version the
    given configuration and release are what runs now, and the other is what comes: it says what
    changes at kubelet's start, what with the next container, and what stays stale. Exits 1 when
    kubelet would refuse a configuration, and as --fail-on says.

    \b
    Examples:
      kustomize build | memqos plan-cgroups -f - --capacity memory=64Gi
      memqos plan-cgroups -f deploy/ --kubelet-config kubelet.yaml --node node.yaml -o tree
      memqos plan-cgroups -f pods.yaml --kubelet-version 1.36 --diff-version 1.37
    """
    require_one_stdin(*filenames, kubelet_config, node_file, diff)
    reader = ManifestReader(replicas=replicas, strict=strict)
    read_manifests(filenames, reader)
    workloads = list(reader.workloads())
    if sum(workload.replicas for workload in workloads) > _MAX_PODS:
        raise InputError(f"the replicas are more than {_MAX_PODS} pods", source=filenames[0])
    facts = choose_node(node_file, capacity, reader.nodes)
    node = Node(
        capacity_bytes=facts.capacity_bytes,
        page_size=page_size,
        cgroup_version=cgroup_version,
        swap_controller=None if facts.swap_bytes is None else True,
        swap_capacity_bytes=facts.swap_bytes or 0,
        hugepage_bytes=facts.hugepage_bytes or 0,
    )
    config = resolve_config(_config(kubelet_config), minor=kubelet_version)
    planner = _Planner(node, workloads, cgroup_driver, kernel or facts.kernel)
    source = None if kubelet_config in (None, "-") else kubelet_config
    report = planner.plan(config, source)
    if diff is not None or diff_version is not None:
        coming = resolve_config(
            config.kubelet if diff is None else _config(diff),
            minor=kubelet_version if diff_version is None else diff_version,
        )
        source = source if diff in (None, "-") else diff
        report = _changed(report, planner.plan(coming, source))
    if output in ("json", "yaml"):
        write(document.render("CgroupPlan", plan_report.fields(report), output))
    elif output in ("junit", "sarif", "github"):
        from memqos_cli.output import ci

        write(ci.render(report, output))
    else:
        write(plan_report.render(report, output))
    for text in _notes(reader):
        note(text)
    click.get_current_context().exit(_exit_code(report, fail_on))


class _Planner(NamedTuple):
    """What both plans of a comparison share."""

    node: Node
    workloads: list[Workload]
    cgroup_driver: str | None
    kernel: str | None

    def plan(self, config: MemoryQOSConfig, source: str | None) -> plan_report.PlanReport:
        if config.enabled and config.minor < _FIRST_MINOR:
            raise click.UsageError(
                f"the MemoryQoS of kubelet 1.{config.minor} followed other rules; memqos knows "
                f"those from 1.{_FIRST_MINOR} on"
            )
        name = self.cgroup_driver or config.kubelet.cgroup_driver or Driver.SYSTEMD
        if name not in tuple(Driver):
            raise InputError(
                f"{name!r} is neither systemd nor cgroupfs", source=source, path="$.cgroupDriver"
            )
        driver = Driver(name)
        copies = (pod for workload in self.workloads for pod in _copies(workload))
        plan = plan_cgroups(config, self.node, copies, driver)
        pods = (workload.pod for workload in self.workloads)
        hazards = find_hazards(config, self.node, pods, plan, driver=driver, kernel=self.kernel)
        return plan_report.PlanReport(
            config=config,
            config_source=source,
            plan=plan,
            hazards=tuple(hazards),
            workloads=self.workloads,
        )


def _copies(workload: Workload) -> Iterator[Pod]:
    pod = workload.pod
    for number in range(1, workload.replicas + 1):
        yield pod if number == 1 else evolve(pod, name=f"{pod.name}#{number}")


def _changed(now: plan_report.PlanReport, then: plan_report.PlanReport) -> plan_report.PlanReport:
    changes = compare_plans(now.plan, then.config, then.plan)
    found = [
        Hazard(
            code=error.code,
            severity=Severity.ERROR,
            message=f"kubelet refuses the configuration that is compared with: {error.message}",
        )
        for error in now.config.errors
    ]
    found += find_change_hazards(now.config, then.config, changes)
    return evolve(then, changes=changes, hazards=(*found, *then.hazards))


def _config(name: str | None) -> KubeletConfig:
    return KubeletConfig() if name is None else read_kubelet_config(read_input(name), name)


def _notes(reader: ManifestReader) -> Iterator[str]:
    if reader.unknown:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(reader.unknown.items()))
        yield f"left out, as memqos does not know these kinds: {kinds}"
    if reader.foreign:
        yield (
            f"left out {len(reader.foreign)} documents that are no Kubernetes objects, the first "
            f"in {reader.foreign[0]}"
        )
    if reader.repeated:
        names = sorted(reader.repeated)
        yield f"given more than once, the last one counts: {_some(names)}"
    if reader.owned:
        yield f"left out {reader.owned} objects whose controller is among the manifests"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _exit_code(report: plan_report.PlanReport, fail_on: tuple[str, ...]) -> int:
    lowest = min(
        (_SEVERITIES.index(item) for item in fail_on if item in _SEVERITIES),
        default=len(_SEVERITIES),
    )
    fails = any(
        hazard.code in fail_on
        or isinstance(hazard.code, ConfigErrorCode)
        or _SEVERITIES.index(hazard.severity) >= lowest
        for hazard in report.hazards
    )
    return NO if fails else YES
