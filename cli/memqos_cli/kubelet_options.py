"""The options that describe a kubelet and its node, shared by the checkpoint commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from attrs import evolve

from memqos.adapters.host import Host
from memqos.adapters.kubelet_node import NodeInputs, read_kubelet_node
from memqos.adapters.node import IOMEM, KUBELET_CONFIG
from memqos.errors import InputError
from memqos.kubelet_config import eviction_threshold_bytes, parse_reservation
from memqos.quantity import parse_quantity
from memqos_cli.derive_tolerance import image_notes
from memqos_cli.options import KubeletVersion, debug_option, require_one_stdin, root_option


__all__ = ["NodeInputs", "checkpoint_options", "read_node"]


def _key_values(text: str, what: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in text.split(",") if text else ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{item!r} is not of the form {what}")
        pairs[name.strip()] = value.strip()
    return pairs


def _reservations(_ctx: Any, _param: Any, values: tuple[str, ...]) -> tuple[Any, ...] | None:
    try:
        return tuple(item for text in values for item in parse_reservation(text)) or None
    except InputError as error:
        raise click.BadParameter(error.message) from None


def _resources(_ctx: Any, _param: Any, value: str | None) -> dict[str, str] | None:
    if value is None:
        return None
    amounts = _key_values(value, "RESOURCE=QUANTITY")
    try:
        for amount in amounts.values():
            parse_quantity(amount)
    except InputError as error:
        raise click.BadParameter(error.message) from None
    return amounts


def _eviction(_ctx: Any, _param: Any, value: str | None) -> dict[str, str] | None:
    if value is None:
        return None
    thresholds = _key_values(value.replace("<", "="), "SIGNAL<THRESHOLD")
    try:
        eviction_threshold_bytes(thresholds.get("memory.available"), 0)
    except InputError as error:
        raise click.BadParameter(error.message) from None
    return thresholds


_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


def _gates(_ctx: Any, _param: Any, values: tuple[str, ...]) -> dict[str, bool]:
    gates = {}
    for text in values:
        for name, value in _key_values(text, "GATE=true|false").items():
            if value not in _TRUE + _FALSE:
                raise click.BadParameter(f"{name}={value} is neither true nor false")
            gates[name] = value in _TRUE
    return gates


_OPTIONS = (
    click.argument(
        "checkpoint",
        required=False,
        metavar="[CHECKPOINT]",
        type=click.Path(readable=False, allow_dash=True),
    ),
    root_option,
    click.option(
        "--kubelet-config",
        type=click.Path(readable=False, allow_dash=True),
        metavar="FILE",
        help=f"KubeletConfiguration.  [default: ROOT/{KUBELET_CONFIG}]",
    ),
    click.option("--memory-manager-policy", metavar="POLICY", help="None, Static or BestEffort."),
    click.option(
        "--reserved-memory",
        metavar="NODE:RESOURCE=QUANTITY[,...]",
        multiple=True,
        callback=_reservations,
        help="As kubelet's flag; repeatable.",
    ),
    click.option(
        "--system-reserved", metavar="memory=QUANTITY", callback=_resources, help="As kubelet's."
    ),
    click.option(
        "--kube-reserved", metavar="memory=QUANTITY", callback=_resources, help="As kubelet's."
    ),
    click.option(
        "--eviction-hard",
        metavar="memory.available<QUANTITY|PERCENT",
        callback=_eviction,
        help="As kubelet's; '=' is taken for '<'.  [default: memory.available<100Mi]",
    ),
    click.option(
        "--feature-gates",
        metavar="GATE=true|false[,...]",
        multiple=True,
        callback=_gates,
        help="As kubelet's; repeatable.",
    ),
    click.option(
        "--drift-tolerance",
        metavar="auto|off|QUANTITY",
        help="Set memory-drift-tolerance, and its gate: what if?",
    ),
    click.option(
        "--machine-info",
        type=click.Path(readable=False, allow_dash=True),
        metavar="FILE",
        help="cAdvisor MachineInfo JSON in place of ROOT/sys.",
    ),
    click.option(
        "--iomem",
        type=click.Path(readable=False, allow_dash=True),
        metavar="FILE",
        help=f"Read this instead of ROOT/{IOMEM}.",
    ),
    click.option(
        "--kubelet-version",
        type=KubeletVersion(),
        default="1.38",
        show_default=True,
        help="The release whose rules apply.",
    ),
    debug_option,
)


def checkpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options to a command; `read_node` takes them all as keywords."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read_node(
    *,
    checkpoint: str | None,
    host: Host,
    kubelet_config: str | None,
    drift_tolerance: str | None,
    machine_info: str | None,
    iomem: str | None,
    kubelet_version: int,
    feature_gates: dict[str, bool],
    **flags: Any,
) -> NodeInputs:
    """Read every input, wherever the options point."""
    require_one_stdin(checkpoint, kubelet_config, machine_info, iomem)
    node = read_kubelet_node(
        host,
        kubelet_version=kubelet_version,
        drift_tolerance=drift_tolerance,
        checkpoint=checkpoint,
        kubelet_config=kubelet_config,
        machine_info=machine_info,
        iomem=iomem,
        feature_gates=feature_gates,
        flags={name: value for name, value in flags.items() if value is not None},
    )
    if node.image is None or not node.wants_image:
        return node
    return evolve(node, warnings=(*node.warnings, *image_notes(node.image, node.image_path)))
