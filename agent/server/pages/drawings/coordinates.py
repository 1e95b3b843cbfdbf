"""Where nodes stand within their layers: near their neighbours, in order, without touching."""

import itertools
from typing import Final

from agent.server.pages.drawings.layered_graph import LayeredGraph

_PASSES: Final = 12
_DUMMY_WEIGHT: Final = 4.0
"""Long edges run straight: their dummies give way less than boxes do."""


def place(
    graph: LayeredGraph, rows: list[list[int]], widths: list[float], gap: float
) -> list[float]:
    """Return the centre of each node and dummy; the leftmost edge of all is at 0."""
    node_count = len(widths)
    widths = widths + [0.0] * (len(graph.layer) - node_count)
    weights = [1.0] * node_count + [_DUMMY_WEIGHT] * (len(widths) - node_count)
    offsets = [_offsets(row, widths, gap) for row in rows]
    x = [0.0] * len(widths)
    for row, own in zip(rows, offsets, strict=True):
        half = own[-1] / 2 if own else 0.0
        for node, offset in zip(row, own, strict=True):
            x[node] = offset - half
    for number in range(_PASSES):
        goes_down = number % 2 == 0
        is_last = number >= _PASSES - 2
        order = range(len(rows)) if goes_down else range(len(rows) - 1, -1, -1)
        for layer in order:
            wanted = []
            for node in rows[layer]:
                near = graph.above[node] if goes_down else graph.below[node]
                if is_last:
                    near = graph.above[node] + graph.below[node]
                wanted.append(_median([x[neighbour] for neighbour in near], x[node]))
            positions = spread(wanted, offsets[layer], [weights[node] for node in rows[layer]])
            for node, value in zip(rows[layer], positions, strict=True):
                x[node] = value
    left = min((x[node] - widths[node] / 2 for node in range(len(x))), default=0.0)
    return [value - left for value in x]


def _offsets(row: list[int], widths: list[float], gap: float) -> list[float]:
    """Return how far from the first node of a row each may stand at the least."""
    offsets = [0.0] * len(row)
    for place_, (left, right) in enumerate(itertools.pairwise(row), 1):
        offsets[place_] = offsets[place_ - 1] + widths[left] / 2 + gap + widths[right] / 2
    return offsets


def spread(wanted: list[float], offsets: list[float], weights: list[float]) -> list[float]:
    """Return positions that keep their order and gaps, as close to those wanted as possible.

    Without its offset each position may only grow: this is isotonic regression, by pooling
    neighbours that violate the order.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, offset, weight in zip(wanted, offsets, weights, strict=True):
        mean, total, count = value - offset, weight, 1
        while pools and pools[-1][0] > mean:
            other, other_weight, other_count = pools.pop()
            mean = (mean * total + other * other_weight) / (total + other_weight)
            total, count = total + other_weight, count + other_count
        pools.append((mean, total, count))
    means = [mean for mean, _, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _median(values: list[float], otherwise: float) -> float:
    if not values:
        return otherwise
    values = sorted(values)
    middle = len(values) // 2
    if len(values) % 2:
        return values[middle]
    return (values[middle - 1] + values[middle]) / 2
