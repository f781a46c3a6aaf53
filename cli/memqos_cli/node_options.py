"""Options that describe a node: --node and --capacity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from attrs import evolve

from memqos.adapters.manifest_files import read_manifests
from memqos.errors import InputError
from memqos.manifests import ManifestReader, NodeFacts
from memqos.quantity import parse_quantity
from memqos_cli.options import Command
from memqos_cli.output.terminal import note


__all__ = ["choose_node", "node_options"]


def node_options(command: Command) -> Command:
    """Add --node and --capacity, of which `choose_node` makes `NodeFacts`."""
    command = click.option(
        "--capacity",
        callback=_capacity,
        metavar="memory=QUANTITY[,...]",
        help="The node's capacity: memory, swap, hugepages-SIZE.",
    )(command)
    return click.option(
        "--node",
        "node_file",
        type=click.Path(readable=False, allow_dash=True),
        metavar="FILE",
        help="v1 Node, for its capacity.",
    )(command)


def _capacity(_ctx: Any, _param: Any, value: str | None) -> NodeFacts | None:
    if value is None:
        return None
    sizes: dict[str, int] = {}
    for item in value.split(","):
        name, equals, amount = item.partition("=")
        if not equals or not (name in ("memory", "swap") or name.startswith("hugepages-")):
            raise click.BadParameter(f"{item!r} is not memory=, swap= or hugepages-SIZE=QUANTITY")
        try:
            sizes[name] = parse_quantity(amount).value
        except InputError as error:
            raise click.BadParameter(error.message) from None
        if sizes[name] < 0:
            raise click.BadParameter(f"{item} is negative")
    return NodeFacts(
        name="--capacity",
        capacity_bytes=sizes.pop("memory", None),
        swap_bytes=sizes.pop("swap", None),
        hugepage_bytes=sum(sizes.values()),
    )


def choose_node(
    node_file: str | None, capacity: NodeFacts | None, nodes: Sequence[NodeFacts] = ()
) -> NodeFacts:
    """Choose the node: --capacity over --node over others that are known.

    Raises:
        MachineError: the file cannot be read.
        InputError: there is no v1 Node in it.
    """
    if node_file is not None:
        reader = ManifestReader()
        read_manifests([node_file], reader)
        nodes = reader.nodes
        if not nodes:
            raise InputError("no v1 Node in it", source=node_file)
    if len(nodes) > 1:
        note(f"of {len(nodes)} nodes the first is taken: {nodes[0].name}")
    facts = nodes[0] if nodes else NodeFacts(name="")
    if capacity is None:
        return facts
    return evolve(
        facts,
        capacity_bytes=facts.capacity_bytes
        if capacity.capacity_bytes is None
        else capacity.capacity_bytes,
        swap_bytes=facts.swap_bytes if capacity.swap_bytes is None else capacity.swap_bytes,
        hugepage_bytes=capacity.hugepage_bytes or facts.hugepage_bytes,
    )
