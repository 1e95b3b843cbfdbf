"""A graph in layers: each node below everything that it depends on, each edge one layer long.

Nodes are numbers. An edge that passes layers gets a dummy in each of them; the edges from one node
share their dummies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Parents = Sequence[Sequence[int]]
"""For each node, the nodes that it depends on."""


def topological_order(parents: Parents) -> list[int]:
    """Return all nodes, each after those that it depends on."""
    children = children_of(parents)
    missing = [len(set(own)) for own in parents]
    order = [node for node, count in enumerate(missing) if count == 0]
    for node in order:
        for child in children[node]:
            missing[child] -= 1
            if missing[child] == 0:
                order.append(child)
    assert len(order) == len(parents), "the graph has a cycle"
    return order


def children_of(parents: Parents) -> list[list[int]]:
    """Return for each node those that depend on it."""
    children: list[list[int]] = [[] for _ in parents]
    for node, own in enumerate(parents):
        for parent in dict.fromkeys(own):
            children[parent].append(node)
    return children


def reduced(parents: Parents) -> list[list[int]]:
    """Leave out every dependency that follows from others (the transitive reduction).

    The ancestors of a node are a bit set: one integer, so that a union is one operation.
    """
    ancestors = [0] * len(parents)
    result: list[list[int]] = [[] for _ in parents]
    for node in topological_order(parents):
        own = list(dict.fromkeys(parents[node]))
        above = 0
        for parent in own:
            above |= ancestors[parent]
        result[node] = [parent for parent in own if not above >> parent & 1]
        for parent in own:
            above |= 1 << parent
        ancestors[node] = above
    return result


def layers_of(parents: Parents) -> list[int]:
    """Return each node's layer: the length of the longest path to it."""
    layers = [0] * len(parents)
    for node in topological_order(parents):
        layers[node] = max((layers[parent] + 1 for parent in parents[node]), default=0)
    return layers


@dataclass(frozen=True, slots=True)
class LayeredGraph:
    """Nodes and dummies in layers; dummies have the numbers after the last node."""

    layer: list[int]
    above: list[list[int]]
    """For each node and dummy, its neighbours in the layer above it."""
    below: list[list[int]]
    routes: dict[tuple[int, int], list[int]]
    """The dummies that each edge passes, from the top down."""

    def rows(self) -> list[list[int]]:
        """Return the nodes and dummies of each layer."""
        rows: list[list[int]] = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for node, layer in enumerate(self.layer):
            rows[layer].append(node)
        return rows


def layered(parents: Parents) -> LayeredGraph:
    """Put a graph without redundant edges into layers."""
    layer = layers_of(parents)
    above: list[list[int]] = [[] for _ in parents]
    below: list[list[int]] = [[] for _ in parents]
    routes: dict[tuple[int, int], list[int]] = {}

    def connect(upper: int, lower: int) -> None:
        above[lower].append(upper)
        below[upper].append(lower)

    for node, children in enumerate(children_of(parents)):
        chain = [node]
        for child in sorted(children, key=layer.__getitem__):
            while layer[chain[-1]] < layer[child] - 1:
                dummy = len(layer)
                layer.append(layer[chain[-1]] + 1)
                above.append([])
                below.append([])
                connect(chain[-1], dummy)
                chain.append(dummy)
            passed = chain[1 : layer[child] - layer[node]]
            connect(passed[-1] if passed else node, child)
            routes[node, child] = passed
    return LayeredGraph(layer, above, below, routes)
