"""Prometheus text exposition 0.0.4, as node_exporter's textfile collector takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen


__all__ = ["Gauge", "render"]


@frozen
class Gauge:
    """One gauge, or what `type` says: name, help text, and (labels, value) samples."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], int | float], ...]
    type: str = "gauge"


def render(gauges: Iterable[Gauge]) -> str:
    """Render gauges; integers stay exact, and no time stamps (the collector refuses them)."""
    lines = []
    for gauge in gauges:
        if not gauge.samples:
            continue
        lines.append(f"# HELP {gauge.name} {gauge.help}\n# TYPE {gauge.name} {gauge.type}\n")
        for labels, value in gauge.samples:
            text = ",".join(f'{name}="{_escape(item)}"' for name, item in labels.items())
            lines.append(
                f"{gauge.name}{{{text}}} {value}\n" if text else f"{gauge.name} {value}\n"
            )
    return "".join(lines)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
