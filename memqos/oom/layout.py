"""Which cgroups make up which class: plain data, one layout for each way nodes are set up."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from attrs import frozen

from memqos.errors import InputError
from memqos.oom.classes import OOMClass


__all__ = [
    "LAYOUTS",
    "TOPS",
    "Layout",
    "Part",
    "Tree",
    "children",
    "detect_layout",
    "expand",
    "summed_children",
]

#: cgroup directory (``""`` is the root) to file name to text
Tree = Mapping[str, Mapping[str, str]]


class Part(NamedTuple):
    """Cgroups that count towards a class.

    Attributes:
        path: a directory, relative to the mount.
        oom_class: the class.
        each: the directories right below `path`, not `path` itself.
        only: pattern that their names must match, None for all.
        skip: pattern of names to leave out, None for none.
    """

    path: str
    oom_class: OOMClass
    each: bool = False
    only: str | None = None
    skip: str | None = None


@frozen(kw_only=True)
class Layout:
    """A node's cgroups.

    Attributes:
        name: ``talos``, ``systemd`` or ``cgroupfs``.
        metrics: whose pressure and memory is added up, in the order of reading.
        candidates: whose members can be killed, in the order of enumeration.
    """

    name: str
    metrics: tuple[Part, ...]
    candidates: tuple[Part, ...]

    @property
    def protected(self) -> frozenset[str]:
        """Directories that are never killed themselves: parents of candidates and metrics."""
        return frozenset(part.path for part in (*self.metrics, *self.candidates)) | {""}


_RUNTIME_UNITS = r"(kubelet|containerd|crio|cri-docker|docker|k3s|k3s-agent|rke2-.*)\.service"

_TALOS_PODS = (
    Part("kubepods/besteffort", OOMClass.BESTEFFORT),
    Part("kubepods/burstable", OOMClass.BURSTABLE),
    Part("kubepods", OOMClass.GUARANTEED, each=True, skip="besteffort|burstable"),
)
_TALOS_POD_CANDIDATES = (
    Part("kubepods/besteffort", OOMClass.BESTEFFORT, each=True),
    Part("kubepods/burstable", OOMClass.BURSTABLE, each=True),
    Part("kubepods", OOMClass.GUARANTEED, each=True, skip="besteffort|burstable"),
)
# The runtime lives inside system.slice, whose own pressure would count it twice.
_UNITS = (
    Part("init.scope", OOMClass.SYSTEM),
    Part("system.slice", OOMClass.SYSTEM, each=True, skip=_RUNTIME_UNITS),
    Part("system.slice", OOMClass.PODRUNTIME, each=True, only=_RUNTIME_UNITS),
    Part("runtime.slice", OOMClass.PODRUNTIME, each=True),
)
_UNIT_CANDIDATES = (
    Part("runtime.slice", OOMClass.PODRUNTIME, each=True),
    Part("system.slice", OOMClass.PODRUNTIME, each=True, only=_RUNTIME_UNITS),
    Part("system.slice", OOMClass.SYSTEM, each=True, skip=_RUNTIME_UNITS),
)
_LEAVES = ("init", "init.scope")
_SYSTEMD = "kubepods.slice"
_SYSTEMD_QOS = r"kubepods-(besteffort|burstable)\.slice"

LAYOUTS: Mapping[str, Layout] = {
    "talos": Layout(
        name="talos",
        metrics=(
            Part("init", OOMClass.SYSTEM),
            Part("system", OOMClass.SYSTEM),
            Part("podruntime", OOMClass.PODRUNTIME),
            *_TALOS_PODS,
        ),
        candidates=(
            *_TALOS_POD_CANDIDATES,
            Part("podruntime", OOMClass.PODRUNTIME, each=True),
            Part("system", OOMClass.SYSTEM, each=True),
        ),
    ),
    "cgroupfs": Layout(
        name="cgroupfs",
        metrics=(*_UNITS, *_TALOS_PODS),
        candidates=(*_TALOS_POD_CANDIDATES, *_UNIT_CANDIDATES),
    ),
    "systemd": Layout(
        name="systemd",
        metrics=(
            *_UNITS,
            Part(f"{_SYSTEMD}/kubepods-besteffort.slice", OOMClass.BESTEFFORT),
            Part(f"{_SYSTEMD}/kubepods-burstable.slice", OOMClass.BURSTABLE),
            Part(_SYSTEMD, OOMClass.GUARANTEED, each=True, skip=_SYSTEMD_QOS),
        ),
        candidates=(
            Part(f"{_SYSTEMD}/kubepods-besteffort.slice", OOMClass.BESTEFFORT, each=True),
            Part(f"{_SYSTEMD}/kubepods-burstable.slice", OOMClass.BURSTABLE, each=True),
            Part(_SYSTEMD, OOMClass.GUARANTEED, each=True, skip=_SYSTEMD_QOS),
            *_UNIT_CANDIDATES,
        ),
    ),
}


_PODS = ("kubepods", _SYSTEMD)
_UNIT_TOPS = ("system.slice", "init.scope")
_TALOS_TOPS = ("podruntime", "init")

#: The cgroups right below the root that tell one layout from another.
TOPS = (*_PODS, *_UNIT_TOPS, *_TALOS_TOPS)


def summed_children(layout: Layout) -> Layout:
    """Return a layout that adds up a class' children instead of reading its own cgroup.

    Talos reads the class cgroup; the sum is larger, and fires at other times.
    """
    metrics = tuple(
        part if part.path in _LEAVES else part._replace(each=True) for part in layout.metrics
    )
    return Layout(name=layout.name, metrics=metrics, candidates=layout.candidates)


def detect_layout(directories: Collection[str]) -> Layout:
    """Choose a layout by what stands at the top of a tree, as far as it is one of `TOPS`.

    Raises:
        InputError: both drivers' kubepods stand there.
    """
    tops = {path.partition("/")[0] for path in directories}
    if tops.issuperset(_PODS):
        raise InputError("both kubepods and kubepods.slice exist; say which with --layout")
    if _SYSTEMD in tops:
        return LAYOUTS["systemd"]
    if not tops.isdisjoint(_UNIT_TOPS) and tops.isdisjoint(_TALOS_TOPS):
        return LAYOUTS["cgroupfs"]
    return LAYOUTS["talos"]


def children(directories: Collection[str]) -> Mapping[str, list[str]]:
    """Map each directory to the names right below it, in byte order."""
    found: dict[str, set[str]] = {}
    for path in directories:
        while path:
            parent, _, name = path.rpartition("/")
            names = found.setdefault(parent, set())
            if name in names:
                break
            names.add(name)
            path = parent  # noqa: PLW2901  # walking up
    return {parent: sorted(names, key=_bytes_of) for parent, names in found.items()}


def _bytes_of(name: str) -> tuple[bytes, str]:
    """Return a name's bytes, whatever a recording has in it; two names are never the same."""
    try:
        return name.encode("utf-8", "surrogateescape"), name
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogatepass"), name


def expand(
    parts: tuple[Part, ...], below: Mapping[str, list[str]]
) -> Iterator[tuple[str, OOMClass]]:
    """Yield the directories of parts, with their classes."""
    for part in parts:
        if not part.each:
            yield part.path, part.oom_class
            continue
        for name in below.get(part.path, ()):
            if _belongs(part, name):
                yield f"{part.path}/{name}", part.oom_class


@lru_cache(maxsize=4096)  # asked again every cycle
def _belongs(part: Part, name: str) -> bool:
    if part.only is not None and not re.fullmatch(part.only, name):
        return False
    return part.skip is None or not re.fullmatch(part.skip, name)
