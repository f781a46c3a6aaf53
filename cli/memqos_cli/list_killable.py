"""``memqos list-killable``."""

from __future__ import annotations

from fnmatch import fnmatchcase

import click

from memqos.adapters.manifest_files import read_manifests
from memqos.manifests import ManifestReader
from memqos.oom.killable import KillablePod, find_killable
from memqos_cli.exit_codes import NO, YES
from memqos_cli.oom_options import config_option, load_config, require_valid, swap_option
from memqos_cli.options import debug_option, output_option, require_one_stdin
from memqos_cli.output import document
from memqos_cli.output.terminal import note, table, write


__all__ = ["command"]


@click.command()
@click.option(
    "-f",
    "--filename",
    "filenames",
    type=click.Path(readable=False, allow_dash=True),
    multiple=True,
    required=True,
    metavar="FILE|DIR|-",
    help="Manifests or a PodList; repeatable, directories recursively.",
)
@config_option
@swap_option
@click.option(
    "--fail-on",
    multiple=True,
    metavar="NAMESPACE/NAME",
    help="Exit 1 when a pod that matches (* and ? allowed) can be killed, or it cannot be told; "
    "repeatable.",
)
@output_option()
@debug_option
def command(
    filenames: tuple[str, ...],
    config: str | None,
    swap: bool,
    fail_on: tuple[str, ...],
    output: str,
) -> None:
    """Tell which pods the OOM handler can kill, in which order, and what would protect them.

    \b
    Examples:
      memqos list-killable -f deploy/ --fail-on 'kube-system/*'
      kubectl get pods -A -o json | memqos list-killable -f - --config oom.yaml
    """
    require_one_stdin(*filenames, config)
    for pattern in fail_on:
        if pattern.count("/") != 1:
            raise click.BadParameter(f"{pattern!r} is not of the form NAMESPACE/NAME")
    checked = require_valid(load_config(config, swap=swap))
    reader = ManifestReader()
    read_manifests(filenames, reader)
    pods = find_killable([workload.pod for workload in reader.workloads()], checked)
    if output == "text":
        write(_text(pods))
    else:
        fields = {
            "pods": [
                {
                    "pod": pod.pod,
                    "class": pod.oom_class.label,
                    "memoryMax": pod.memory_max,
                    "eligible": pod.eligible,
                    "order": pod.order,
                    "reason": pod.reason,
                    "remedy": pod.remedy,
                }
                for pod in pods
            ]
        }
        write(document.render("KillablePods", fields, output))
    exposed = [pod for pod in pods if pod.eligible is not False and _matches(pod, fail_on)]
    for pod in exposed:
        verdict = "can be killed" if pod.eligible else "may be killed, which cannot be told"
        note(f"{pod.pod} must survive and {verdict}: {pod.reason}; remedy: {pod.remedy}")
    click.get_current_context().exit(NO if exposed else YES)


def _matches(pod: KillablePod, patterns: tuple[str, ...]) -> bool:
    name = pod.pod.partition("/")[2]
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _goes(pod: KillablePod) -> str:
    if pod.eligible is None:
        return "unknown"
    return "never" if pod.order is None else str(pod.order)


def _text(pods: tuple[KillablePod, ...]) -> str:
    def order(pod: KillablePod) -> tuple[bool, bool, int, str]:
        return (pod.eligible is False, pod.eligible is None, pod.order or 0, pod.pod)

    rows = [
        (
            pod.pod,
            pod.oom_class.label,
            "-" if pod.memory_max is None else str(pod.memory_max),
            _goes(pod),
            pod.reason,
            pod.remedy or "-",
        )
        for pod in sorted(pods, key=order)
    ]
    return table(("POD", "CLASS", "LIMIT", "GOES", "WHY", "REMEDY"), rows)
