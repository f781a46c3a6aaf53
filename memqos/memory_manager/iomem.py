"""The kernel image's span, from the text of ``/proc/iomem`` (KEP-6232)."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from attrs import frozen


__all__ = [
    "GRACE_BYTES",
    "IMPLAUSIBLE_BYTES",
    "ImageStatus",
    "KernelImage",
    "Segment",
    "find_image",
]

#: KEP-6232's grace above the image size, for the KiB-scale effects beside it.
GRACE_BYTES = 64 * 1024 * 1024

#: Kernel images are tens of MiB. A span above this comes from a stray entry: kubelet takes it,
#: memqos says so.
IMPLAUSIBLE_BYTES = 1024 * 1024 * 1024

_NAMES = ("Kernel code", "Kernel data", "Kernel bss")
_HEX = re.compile(r"[0-9a-fA-F]+")


class ImageStatus(StrEnum):
    """Whether the size is known.

    `HIDDEN`: the kernel shows addresses as zero to a reader without CAP_SYS_ADMIN, for all
    entries or some. `ABSENT`: there is no entry for the kernel image.
    """

    OK = "ok"
    HIDDEN = "hidden"
    ABSENT = "absent"


class Segment(NamedTuple):
    """One entry of the kernel image; addresses are inclusive."""

    name: str
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Bytes from start to end, both included."""
        return self.end - self.start + 1


@frozen(kw_only=True)
class KernelImage:
    """What ``/proc/iomem`` says of the running kernel's image.

    Attributes:
        status: whether the size is known.
        size_bytes: lowest start to highest end, None unless the status is `OK`. The span is what
            bounds the drift: gaps between the segments stay reserved as well.
        segments: the entries that count, in file order.
    """

    status: ImageStatus
    size_bytes: int | None
    segments: tuple[Segment, ...]

    @property
    def tolerance_bytes(self) -> int | None:
        """The bound that ``auto`` gives: the size plus the grace; None when it is unknown."""
        return None if self.size_bytes is None else self.size_bytes + GRACE_BYTES

    @property
    def is_implausible(self) -> bool:
        """Whether the span is too large to be one kernel image."""
        return self.size_bytes is not None and self.size_bytes > IMPLAUSIBLE_BYTES


def find_image(iomem: str) -> KernelImage:
    """Find the kernel image in the text of ``/proc/iomem``.

    Lines that do not parse are skipped. One zeroed entry makes the whole size unknown, as the KEP
    has it (an early kubelet revision only looked for all of them being zero).
    """
    segments = tuple(
        segment for line in iomem.split("\n") if (segment := _segment(line)) is not None
    )
    if not segments:
        return KernelImage(status=ImageStatus.ABSENT, size_bytes=None, segments=())
    if any(segment.start == 0 and segment.end == 0 for segment in segments):
        return KernelImage(status=ImageStatus.HIDDEN, size_bytes=None, segments=segments)
    lowest = min(segment.start for segment in segments)
    highest = max(segment.end for segment in segments)
    return KernelImage(status=ImageStatus.OK, size_bytes=highest - lowest + 1, segments=segments)


def _segment(line: str) -> Segment | None:
    addresses, colon, name = line.rpartition(":")
    if not colon or name.strip() not in _NAMES:
        return None
    low, dash, high = addresses.strip().partition("-")
    start, end = _address(low.strip()), _address(high.strip())
    if not dash or start is None or end is None or end < start:
        return None
    return Segment(name.strip(), start, end)


def _address(text: str) -> int | None:
    if not _HEX.fullmatch(text):
        return None
    digits = text.lstrip("0")
    return int(digits or "0", 16) if len(digits) <= 16 else None
