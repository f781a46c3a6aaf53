"""Maps with plain keys and values: dicts."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from memqos.oom.expression.pieces import SCALARS, Piece, depth_of
from memqos.oom.expression.scalars import Scalars
from memqos.oom.expression.tree import Call, Ident, Items, Mapped, Node
from memqos.oom.expression.values import box, unbox


__all__ = ["PlainMaps"]


class PlainMaps(Scalars):
    """Writes look-ups in dicts."""

    @abstractmethod
    def _ident(self, node: Ident) -> Piece:
        """Write a variable."""

    def _plain(self, node: Node) -> Piece | None:
        """Return a map as a dict of plain values, None where that is not possible."""
        if isinstance(node, Ident):
            piece = self._ident(node)
            return piece if piece.form == "map" else None
        if not isinstance(node, Mapped) or not node.entries:
            return None
        key, value = node.type.of
        if key.kind not in ("int", "uint", "string", "bool") or value.kind not in SCALARS:
            return None
        if any(entry.optional for entry in node.entries):
            return None
        keys = [self.emit(entry.key) for entry in node.entries]
        values = [self.emit(entry.value) for entry in node.entries]
        parts = [*keys, *values]
        if any(part.form != "scalar" for part in parts):
            return None
        if all(part.known for part in parts):
            table = {
                unbox(name.constant): unbox(item.constant)
                for name, item in zip(keys, values, strict=True)
            }
            return Piece(self.keep(table), node.type, "map", constant=table)
        pairs = ", ".join(
            f"{name.code}: {item.code}" for name, item in zip(keys, values, strict=True)
        )
        fails = any(part.fails for part in parts)
        return Piece(f"{{{pairs}}}", node.type, "map", fails=fails, depth=depth_of(parts))

    def _plain_map(self, name: str, node: Call, arguments: list[Node]) -> Piece | None:
        if name == "multiply_qos_vectors":
            return self._product(node, arguments)
        if name == "@in":
            item, container = arguments
            if container.type.kind != "map":
                return self._plain_member(node, item, container)
            mapped = self._plain(container)
            key = self.emit(item)
            if mapped is None or key.form != "scalar" or key.of != mapped.of.of[0]:
                return None
            return self._scalar(f"({key.code} in {mapped.code})", node.type, [key, mapped])
        container, item = arguments
        if container.type.kind != "map":
            return None
        mapped = self._plain(container)
        if mapped is None:
            return None
        key = self.emit(item)
        if key.form != "scalar" or key.of != mapped.of.of[0]:
            return None
        if mapped.known and key.known and unbox(key.constant) in mapped.constant:
            return self._constant(box(mapped.constant[unbox(key.constant)], node.type), node.type)
        return self._scalar(f"{mapped.code}[{key.code}]", node.type, [mapped, key], fails=True)

    def _plain_member(self, node: Call, item: Node, container: Node) -> Piece | None:
        if not isinstance(container, Items) or container.optional or not container.elements:
            return None
        parts = [self.emit(item), *(self.emit(element) for element in container.elements)]
        kinds = {part.of.kind for part in parts}
        if (
            len(kinds) != 1
            or not kinds <= {"int", "uint", "string", "duration", "bool"}
            or any(part.form != "scalar" for part in parts)
            or self._locals
        ):
            return None
        if all(part.known for part in parts):
            return self._constant(
                parts[0].constant in [part.constant for part in parts[1:]], node.type
            )
        elements = "".join(f"{part.code}, " for part in parts[1:])
        return self._scalar(f"({parts[0].code} in ({elements}))", node.type, parts)

    def _product(self, node: Call, arguments: list[Node]) -> Piece | None:
        values, weights = (self._plain(argument) for argument in arguments)
        if values is None or weights is None:
            return None
        parts = [values, weights]
        if (values.of.of[0] != weights.of.of[0]) or {part.of.of[1].kind for part in parts} != {
            "double"
        }:
            return None
        if self._locals:
            return None
        if self.quick and weights.known and not values.known:
            self.assumes = True
            table: dict[Any, float] = weights.constant
            kept = self._temporary()
            terms = [
                f"{kept}[{self._spell(key, 'scalar')}] * {self._spell(table[key], 'scalar')}"
                for key in sorted(table)
            ]
            if terms:
                terms[0] = terms[0].replace(kept, f"({kept} := {values.code})", 1)
            return self._scalar(f"({' + '.join(['0.0', *terms])})", node.type, parts)
        return self._scalar(f"dot({values.code}, {weights.code})", node.type, parts)
