"""The names that an expression may use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attrs import evolve, frozen

from memqos.oom.expression.types import (
    DOUBLE,
    DURATION,
    INT,
    STRING,
    UINT,
    Type,
    map_of,
    optional_of,
)


__all__ = [
    "CLASSES",
    "RANKING",
    "RANKING_WITH_SWAP",
    "TRIGGER",
    "TRIGGER_WITH_SWAP",
    "Environment",
]


@frozen(eq=False)
class Environment:
    """The names that an expression may use, beside the standard library.

    Attributes:
        variables: name to type.
        constants: name to type and value.
        functions: the functions beyond the standard library.
    """

    variables: Mapping[str, Type]
    constants: Mapping[str, tuple[Type, int]]
    functions: frozenset[str] = frozenset()


CLASSES: Final = MappingProxyType(
    {"Besteffort": 0, "Burstable": 1, "Guaranteed": 2, "Podruntime": 3, "System": 4}
)

_UNITS: dict[str, int] = {
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTPE", start=1)},
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGTPE", start=1)},
}
_CONSTANTS = MappingProxyType(
    {
        **{name: (INT, value) for name, value in CLASSES.items()},
        **{name: (UINT, value) for name, value in _UNITS.items()},
    }
)

_PRESSURE = [
    f"memory_{kind}_{span}"
    for kind in ("some", "full")
    for span in ("avg10", "avg60", "avg300", "total")
]
_BY_CLASS = [f"qos_{name}" for name in (*_PRESSURE, "memory_current", "memory_peak", "memory_max")]

TRIGGER: Final = Environment(
    variables=MappingProxyType(
        {
            **{name: DOUBLE for base in _PRESSURE for name in (base, f"d_{base}")},
            **{name: map_of(INT, DOUBLE) for base in _BY_CLASS for name in (base, f"d_{base}")},
            "time_since_trigger": DURATION,
        }
    ),
    constants=_CONSTANTS,
    functions=frozenset({"multiply_qos_vectors"}),
)
RANKING: Final = Environment(
    variables=MappingProxyType(
        {
            "memory_max": optional_of(UINT),
            "memory_current": optional_of(UINT),
            "memory_peak": optional_of(UINT),
            "path": STRING,
            "class": INT,
        }
    ),
    constants=_CONSTANTS,
)

# Talos has no variables of swap, so that expressions with them are valid on request only.
TRIGGER_WITH_SWAP: Final = evolve(
    TRIGGER,
    variables=MappingProxyType(
        {
            **TRIGGER.variables,
            "qos_memory_swap_current": map_of(INT, DOUBLE),
            "d_qos_memory_swap_current": map_of(INT, DOUBLE),
            "swap_total": UINT,
            "swap_free": UINT,
        }
    ),
)
RANKING_WITH_SWAP: Final = evolve(
    RANKING,
    variables=MappingProxyType({**RANKING.variables, "memory_swap_current": optional_of(UINT)}),
)
