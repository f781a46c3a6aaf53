"""The JSON Schemas of the output documents, shipped with the package."""

from __future__ import annotations

from importlib.resources import files


__all__ = ["schema_kinds", "schema_text"]


def schema_kinds() -> tuple[str, ...]:
    """List the kinds that have a schema."""
    names = (entry.name for entry in files("memqos.schemas").iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


def schema_text(kind: str) -> str:
    """Return the JSON Schema of a kind."""
    return files("memqos.schemas").joinpath(f"{kind}.json").read_text("utf-8")
