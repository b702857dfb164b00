"""Prometheus text as engines write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

KIND = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 240.0)


@dataclass(slots=True)
class Histogram:
    """Cumulative counts below each bucket's edge."""

    below: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))
    count: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.below = [n + (value <= edge) for n, edge in zip(self.below, BUCKETS, strict=True)]


class Page:
    """Samples in order; `labels` go on every one of them."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._lines: list[str] = []

    def gauge(self, name: str, help_text: str, value: float, **labels: str) -> None:
        self._one(name, help_text, "gauge", value, labels)

    def counter(self, name: str, help_text: str, value: float, **labels: str) -> None:
        self._one(name, help_text, "counter", value, labels)

    def family(
        self, name: str, help_text: str, kind: str, rows: Sequence[tuple[Mapping[str, str], float]]
    ) -> None:
        self._head(name, help_text, kind)
        self._lines += [f"{name}{self._text(labels)} {_number(value)}" for labels, value in rows]

    def histogram(self, name: str, help_text: str, values: Histogram) -> None:
        self._head(name, help_text, "histogram")
        for edge, below in zip(BUCKETS, values.below, strict=True):
            self._lines.append(f"{name}_bucket{self._text({'le': str(edge)})} {_number(below)}")
        self._lines.append(f"{name}_bucket{self._text({'le': '+Inf'})} {_number(values.count)}")
        self._lines.append(f"{name}_count{self._text({})} {_number(values.count)}")
        self._lines.append(f"{name}_sum{self._text({})} {_number(values.total)}")

    def raw(self, line: str) -> None:
        self._lines.append(line)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _one(self, name: str, help_text: str, kind: str, value: float, labels: Mapping[str, str]) -> None:
        self.family(name, help_text, kind, [(labels, value)])

    def _head(self, name: str, help_text: str, kind: str) -> None:
        self._lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]

    def _text(self, labels: Mapping[str, str]) -> str:
        merged = {**self._labels, **labels}
        return "{" + ",".join(f'{k}="{merged[k]}"' for k in sorted(merged)) + "}" if merged else ""


def _number(value: float) -> str:
    return repr(float(value))
