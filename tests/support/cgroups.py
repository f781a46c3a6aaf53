"""cgroup trees as files: captures of real kernels, and small ones made by hand.

`tests/data/cgroups/<scenario>.json` holds, byte for byte, what kernels returned in a virtual
machine: `trees` by point in time, cgroup and file; `pods` and `containers` name paths.
g1 is Guaranteed (256Mi), b1 Burstable (128Mi/256Mi), b2 Burstable, e1 and e2 BestEffort.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias


FOLDER = Path(__file__).parents[1] / "data" / "cgroups"

Tree: TypeAlias = Mapping[str, Mapping[str, str]]

MIB = 1 << 20


@cache
def scenario(name: str) -> Any:
    """Return everything of one scenario."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def captured(name: str, time: str) -> Tree:
    """Return the tree of a scenario at a point in time."""
    tree: Tree = scenario(name)["trees"][time]
    return tree


def write_tree(folder: Path, tree: Mapping[str, Mapping[str, object]]) -> Path:
    """Write a tree as files."""
    for path, files in tree.items():
        place = folder / path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (place / name).write_text(text if isinstance(text, str) else f"{text}\n")
    return folder


def capture(folder: Path, name: str, time: str) -> Path:
    """Write the tree of a scenario at a point in time as files."""
    return write_tree(folder / name / time, captured(name, time))


def changed(tree: Tree, changes: Mapping[str, Mapping[str, object]]) -> Tree:
    """Return a tree in which some files have other texts."""
    return {
        path: {**files, **{name: f"{text}\n" for name, text in changes.get(path, {}).items()}}
        for path, files in tree.items()
    }
