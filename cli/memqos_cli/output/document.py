"""JSON and YAML documents of the contract: ``apiVersion``, ``kind``, fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite, isnan
from typing import Any


__all__ = ["render"]

_API_VERSION = "memqos/v1"


def render(kind: str, fields: Mapping[str, Any], output: str) -> str:
    """Render one document as ``json`` or ``yaml``."""
    document = _plain({"apiVersion": _API_VERSION, "kind": kind, **fields})
    if output == "json":
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text


def _plain(value: Any) -> Any:
    """Reduce to what both formats have; numbers that JSON lacks become strings."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
