"""Prometheus text exposition 0.0.4, as node_exporter's textfile collector takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen


__all__ = ["Metric", "render"]


@frozen
class Metric:
    """One metric: name, help text, and (labels, value) samples."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], int | float], ...]
    type: str = "gauge"


def render(metrics: Iterable[Metric]) -> str:
    """Render metrics; integers stay exact, and no time stamps (the collector refuses them)."""
    lines = []
    for metric in metrics:
        if not metric.samples:
            continue
        lines.append(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.type}\n")
        for labels, value in metric.samples:
            text = ",".join(f'{name}="{_escape(item)}"' for name, item in labels.items())
            lines.append(
                f"{metric.name}{{{text}}} {value}\n" if text else f"{metric.name} {value}\n"
            )
    return "".join(lines)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
