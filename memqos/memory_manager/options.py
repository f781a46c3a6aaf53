"""``memoryManagerPolicyOptions``: ``memory-drift-tolerance`` to a bound in bytes (KEP-6232)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from memqos.errors import QuantityError
from memqos.memory_manager.iomem import KernelImage
from memqos.memory_manager.reasons import Reason, Refusal
from memqos.quantity import parse_quantity


__all__ = ["DRIFT_TOLERANCE", "GATE", "Tolerance", "ToleranceSource", "resolve_tolerance"]

DRIFT_TOLERANCE = "memory-drift-tolerance"
GATE = "MemoryManagerDriftTolerance"


class ToleranceSource(StrEnum):
    """Where the bound comes from; `UNDERIVABLE`: ``auto``, but the image size is unknown."""

    UNSET = "unset"
    OFF = "off"
    EXPLICIT = "explicit"
    KERNEL_IMAGE = "kernel-image"
    UNDERIVABLE = "underivable"


class Tolerance(NamedTuple):
    """The bound in effect; 0 bytes means exact comparison.

    Attributes:
        bytes: the bound.
        source: where it comes from.
        saturated: the quantity is beyond 2^63-1, where kubelet's own value is undefined.
    """

    bytes: int
    source: ToleranceSource
    saturated: bool = False


def resolve_tolerance(
    options: Mapping[str, str], *, gate: bool, image: KernelImage | None
) -> Tolerance | Refusal:
    """Turn the policy options into a bound.

    Args:
        options: ``memoryManagerPolicyOptions``.
        gate: whether MemoryManagerDriftTolerance is on.
        image: the kernel image, None when ``/proc/iomem`` cannot be read.
    """
    unknown = sorted(name for name in options if name != DRIFT_TOLERANCE)
    if unknown:
        return Refusal(
            Reason.OPTION_UNKNOWN, f'unknown Memory Manager Policy option: "{unknown[0]}"'
        )
    text = options.get(DRIFT_TOLERANCE)
    if text is None:
        return Tolerance(0, ToleranceSource.UNSET)
    if not gate:
        return Refusal(
            Reason.OPTION_REQUIRES_GATE,
            f'memory manager policy option "{DRIFT_TOLERANCE}" requires the {GATE} feature gate',
        )
    if text == "off":
        return Tolerance(0, ToleranceSource.OFF)
    if text == "auto":
        bound = None if image is None else image.tolerance_bytes
        if bound is None:
            return Tolerance(0, ToleranceSource.UNDERIVABLE)
        return Tolerance(bound, ToleranceSource.KERNEL_IMAGE)
    try:
        quantity = parse_quantity(text)
    except QuantityError as error:
        return Refusal(
            Reason.OPTION_BAD_VALUE,
            f'bad value for option "{DRIFT_TOLERANCE}": {error.message}; '
            'valid are "auto", "off" and a quantity',
        )
    if quantity.nanos < 0:
        return Refusal(
            Reason.OPTION_NEGATIVE,
            f'bad value for option "{DRIFT_TOLERANCE}": the quantity {text} is negative',
        )
    return Tolerance(quantity.value, ToleranceSource.EXPLICIT, quantity.saturated)
