"""Which types fit which: the rules of cel-go's checker, with type variables."""

from __future__ import annotations

from collections.abc import Sequence

from memqos.oom.expression.problems import SyntaxProblemError
from memqos.oom.expression.types import DYN, Type, parameter


__all__ = ["Bindings", "most_general"]

_WILD = frozenset({"dyn", "error"})
_NULLABLE = frozenset({"optional_type", "duration", "timestamp"})
# The steps of replacing type variables; an expression of the longest kind takes a tenth.
_MAX_WORK = 50_000
_BUILT = frozenset({"list", "map", "optional_type"})


class Bindings:
    """What the type variables stand for, as far as it is known."""

    def __init__(self) -> None:
        self._types: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []
        self._count = 0
        self._work = 0

    def fresh(self) -> Type:
        """Return a new type variable."""
        self._count += 1
        return parameter(f"_var{self._count - 1}")

    def instantiate(self, types: Sequence[Type]) -> list[Type]:
        """Give types of a declaration type variables of their own."""
        names: dict[str, Type] = {}
        return [self._rename(of, names) for of in types]

    def _rename(self, of: Type, names: dict[str, Type]) -> Type:
        if of.kind == "parameter":
            if of.name not in names:
                names[of.name] = self.fresh()
            return names[of.name]
        if not of.of:
            return of
        return Type(of.kind, tuple([self._rename(part, names) for part in of.of]))

    def substitute(self, of: Type, *, final: bool = False) -> Type:
        """Replace variables by what they stand for; with `final`, unknown ones by dyn."""
        self._work += 1
        if self._work > _MAX_WORK:
            raise SyntaxProblemError("expression has types that are too complex", 0)
        if of.kind == "parameter":
            known = self._types.get(of.name)
            if known is not None:
                return self.substitute(known, final=final)
            return DYN if final else of
        if not of.of:
            return of
        return Type(of.kind, tuple([self.substitute(part, final=final) for part in of.of]))

    def assignable(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Tell whether values of the given types fit; on success, bind the variables."""
        self._trail.clear()
        if self._all(given, wanted):
            return True
        for name, before in reversed(self._trail):
            if before is None:
                del self._types[name]
            else:
                self._types[name] = before
        return False

    def _all(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        if len(given) != len(wanted):
            return False
        return all(self._one(left, right) for left, right in zip(given, wanted, strict=True))

    def _one(self, given: Type, wanted: Type) -> bool:
        if wanted.kind == "parameter":
            valid, known = self._bind(given, wanted)
            if valid or known:
                return valid
        if given.kind == "parameter":
            return self._bind(wanted, given)[0]
        if given.kind in _WILD or wanted.kind in _WILD:
            return True
        if given.kind == "null_type" or wanted.kind == "null_type":
            other = wanted if given.kind == "null_type" else given
            return other.kind == "null_type" or other.kind in _NULLABLE
        if given.kind != wanted.kind:
            return False
        return given.kind not in _BUILT or self._all(given.of, wanted.of)

    def _bind(self, value: Type, variable: Type) -> tuple[bool, bool]:
        """Tell whether the variable can stand for the type, and whether it stood for one."""
        if value == variable:
            return True, True
        known = self._types.get(variable.name)
        if known is not None:
            if value == known:
                return True, True
            if self._one(value, known):
                general = most_general(value, known)
                if not self._occurs(variable, general):
                    self._set(variable, general)
                return True, True
            return False, True
        if not self._occurs(variable, value):
            self._set(variable, value)
            return True, False
        return False, False

    def _set(self, variable: Type, value: Type) -> None:
        self._trail.append((variable.name, self._types.get(variable.name)))
        self._types[variable.name] = value

    def _occurs(self, variable: Type, within: Type) -> bool:
        if variable == within:
            return True
        if within.kind == "parameter":
            known = self._types.get(within.name)
            return known is not None and self._occurs(variable, known)
        return any(self._occurs(variable, part) for part in within.of)


def most_general(left: Type, right: Type) -> Type:
    """Return the more general of two types that fit each other."""
    return left if _less_specific(left, right) else right


def _less_specific(left: Type, right: Type) -> bool:
    if left.kind in ("dyn", "parameter"):
        return True
    if right.kind in ("dyn", "parameter") or left.kind != right.kind:
        return False
    if left.kind in _BUILT:
        return all(_less_specific(a, b) for a, b in zip(left.of, right.of, strict=True))
    return True
