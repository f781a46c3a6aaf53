"""memory.high: the formula of KEP-2570, in kubelet's order of arithmetic."""

from __future__ import annotations

from math import floor


__all__ = ["memory_high"]


def memory_high(
    request: int, limit: int, allocatable: int | None, factor: float, page_size: int
) -> int | None:
    """Return memory.high in bytes, None where kubelet writes none.

    Args:
        request: of the container or pod; bytes.
        limit: 0 for none; bytes.
        allocatable: stands in for an absent limit; the absolute one, None if it is not known.
        factor: ``memoryThrottlingFactor``.
        page_size: bytes.
    """
    top = limit or allocatable
    if not top or top <= 0:
        return None
    # IEEE doubles in this very order: exact arithmetic gives another page for some factors.
    x = float(request) + (float(top) - float(request)) * factor
    high = int(float(floor(x)) / float(page_size)) * page_size
    return high if high not in (0, request) and high > request else None
