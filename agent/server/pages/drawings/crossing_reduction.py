"""The order of nodes within their layers, with few crossings of edges."""

import itertools
from bisect import bisect_right, insort
from typing import Final

from agent.server.pages.drawings.layered_graph import LayeredGraph

Rows = list[list[int]]
MAX_SWEEPS: Final = 8


def order_rows(graph: LayeredGraph) -> Rows:
    """Return the layers, each in an order with few crossings.

    Sweeps go down and up and move each node to the mean position of its neighbours; the order with
    the fewest crossings is kept, and the first of equals, which is closest to the order as written.
    """
    rows = _initial(graph)
    best, fewest = rows, crossings(graph, rows)
    for sweep in range(MAX_SWEEPS):
        if fewest == 0:
            break
        rows = _swept(graph, rows, goes_down=sweep % 2 == 0)
        count = crossings(graph, rows)
        if count < fewest:
            best, fewest = rows, count
    return best


def crossings(graph: LayeredGraph, rows: Rows) -> int:
    """Return how many pairs of edges cross."""
    total = 0
    for upper, lower in itertools.pairwise(rows):
        position = {node: place for place, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(position[child] for child in graph.below[node])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _initial(graph: LayeredGraph) -> Rows:
    """Visit depth first, so that branches stand together."""
    rows: Rows = [[] for _ in graph.rows()]
    seen = [False] * len(graph.layer)
    stack = [node for node in reversed(range(len(seen))) if not graph.above[node]]
    while stack:
        node = stack.pop()
        if seen[node]:
            continue
        seen[node] = True
        rows[graph.layer[node]].append(node)
        stack += [child for child in reversed(graph.below[node]) if not seen[child]]
    return rows


def _swept(graph: LayeredGraph, rows: Rows, *, goes_down: bool) -> Rows:
    neighbours = graph.above if goes_down else graph.below
    result = [list(row) for row in rows]
    numbers = range(1, len(rows)) if goes_down else range(len(rows) - 2, -1, -1)
    for number in numbers:
        fixed = result[number - 1 if goes_down else number + 1]
        position = {node: float(place) for place, node in enumerate(fixed)}
        keys = {
            node: _mean([position[neighbour] for neighbour in neighbours[node]], float(place))
            for place, node in enumerate(result[number])
        }
        result[number].sort(key=keys.__getitem__)
    return result


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
