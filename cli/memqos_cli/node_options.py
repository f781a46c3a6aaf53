"""Options that describe a node: --node and --capacity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from attrs import asdict, evolve

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
        help="v1 Node, for its name and capacity.",
    )(command)


def _capacity(_ctx: Any, _param: Any, value: str | None) -> NodeFacts | None:
    if value is None:
        return None
    sizes: dict[str, int] = {}
    for item in value.split(","):
        name, equals, amount = item.partition("=")
        try:
            if not equals or not _is_resource(name):
                raise click.BadParameter(
                    f"{item!r} is not memory=, swap= or hugepages-SIZE=QUANTITY"
                )
            if name in sizes:
                raise click.BadParameter(f"{name} is given more than once")
            sizes[name] = parse_quantity(amount).value
        except InputError as error:
            raise click.BadParameter(error.message) from None
        if sizes[name] < 0:
            raise click.BadParameter(f"{item} is negative")
    return NodeFacts(
        capacity_bytes=sizes.pop("memory", None),
        swap_bytes=sizes.pop("swap", None),
        hugepage_bytes=sum(sizes.values()) if sizes else None,
    )


def _is_resource(name: str) -> bool:
    kind, dash, size = name.partition("-")
    if kind == "hugepages" and dash:
        return parse_quantity(size).value > 0
    return name in ("memory", "swap")


def choose_node(
    node_file: str | None,
    capacity: NodeFacts | None,
    nodes: Sequence[NodeFacts] = (),
    *,
    own: NodeFacts | None = None,
) -> NodeFacts:
    """Choose the node, fact by fact: --capacity over --node or another Node over the root's own.

    Args:
        node_file: of --node.
        capacity: of --capacity.
        nodes: that are known without --node.
        own: what the root tells.

    Raises:
        MachineError: the file cannot be read.
        InputError: there is no v1 Node in it.
    """
    if node_file is not None:
        reader = ManifestReader()
        read_manifests([node_file], reader, directories=False)
        nodes = reader.nodes
        if not nodes:
            raise InputError("no v1 Node in it", source=node_file)
    if len(nodes) > 1:
        note(f"of {len(nodes)} nodes the first is taken: {nodes[0].name or 'one without a name'}")
    facts = own or NodeFacts()
    for other in (*nodes[:1], capacity):
        if other is not None:
            told = {name: value for name, value in asdict(other).items() if value is not None}
            facts = evolve(facts, **told)
    return facts
