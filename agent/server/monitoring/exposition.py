"""Prometheus's text format: families of metrics as lines."""

from collections.abc import Iterable, Mapping
from typing import Final

from agent.tasks.commit.metrics import Histogram

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def single(name: str, kind: str, about: str, value: float) -> Iterable[str]:
    """Return a metric without labels."""
    yield from _head(name, kind, about)
    yield f"{name} {_number(value)}"


def family(
    name: str, kind: str, about: str, label: str, values: Mapping[str, float]
) -> Iterable[str]:
    """Return a metric by the values of one label."""
    yield from _head(name, kind, about)
    for key, value in values.items():
        yield f'{name}{{{label}="{_escaped(key)}"}} {_number(value)}'


def histogram(name: str, about: str, values: Histogram) -> Iterable[str]:
    """Return a histogram, its buckets cumulative."""
    yield from _head(name, "histogram", about)
    cumulative = 0
    counts, total = list(values.counts), values.total
    for bound, count in zip((*values.bounds, float("inf")), counts, strict=True):
        cumulative += count
        limit = "+Inf" if bound == float("inf") else _number(bound)
        yield f'{name}_bucket{{le="{limit}"}} {cumulative}'
    yield f"{name}_sum {_number(total)}"
    yield f"{name}_count {cumulative}"


def _head(name: str, kind: str, about: str) -> Iterable[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(round(value, 6))


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
