"""JSON and YAML documents of the contract: ``apiVersion``, ``kind``, fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite, isnan
from typing import Any


__all__ = ["number", "render"]

_API_VERSION = "memqos/v1"


def render(kind: str, fields: Mapping[str, Any], output: str) -> str:
    """Render one document as ``json`` or ``yaml``."""
    document = {"apiVersion": _API_VERSION, "kind": kind, **fields}
    if output == "json":
        try:
            return _json(document)
        except ValueError:  # numbers that JSON lacks
            return _json(_plain(document))
    document = _plain(document)
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text


def _json(document: Mapping[str, Any]) -> str:
    """Write a field a line, and a list of objects one object a line.

    The C encoder, which knows no indentation, is several times faster on large plans.
    """

    def compact(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    lines = []
    for name, value in document.items():
        if isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
            items = ",\n".join(f"    {compact(item)}" for item in value)
            text = f"[\n{items}\n  ]"
        elif isinstance(value, dict):
            pretty = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
            text = pretty.replace("\n", "\n  ")
        else:
            text = compact(value)
        lines.append(f"  {compact(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def number(value: float | None) -> float | str | None:
    """Return a number as JSON can have it: "NaN", "Infinity" and "-Infinity" are strings."""
    if value is None or isfinite(value):
        return value
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain(value: Any) -> Any:
    """Reduce to what both formats have; numbers that JSON lacks become strings."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # half a character is none
    return number(value) if isinstance(value, float) else value
