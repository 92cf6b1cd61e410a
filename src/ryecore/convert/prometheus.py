"""Metrics in the text format of Prometheus.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

__all__ = ["Sample", "render_metrics"]

Labels: TypeAlias = tuple[tuple[str, str], ...]
Sample: TypeAlias = tuple[str, Labels, float]
"""A metric's name, its labels and its value."""


def render_metrics(samples: Iterable[Sample], described: Mapping[str, tuple[str, str]]) -> str:
    """Return samples as text, those of one metric together.

    Args:
        samples: The samples.
        described: The kind and the meaning of each metric.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, labels, value in samples:
        family = name
        for suffix in ("_bucket", "_sum", "_count"):
            if name.removesuffix(suffix) in described:
                family = name.removesuffix(suffix)
        listed = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
        shown = f"{{{listed}}}" if listed else ""
        found[family].append(f"{name}{shown} {_number(value)}")
    lines: list[str] = []
    for family, written in found.items():
        kind, text = described[family]
        lines += [f"# HELP {family} {text}", f"# TYPE {family} {kind}", *written]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
