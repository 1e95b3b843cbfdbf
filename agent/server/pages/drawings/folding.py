"""Which steps of a graph become one box, so that a drawing stays readable at any size.

Up to `SMALL` steps every step has a box of its own, except in layers of more than `MAX_NAMES_WIDE`. Above that,
steps that need attention and their neighbours keep their boxes; the others are stacked per layer and
status, and chains of stacks become one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.server.pages.drawings.layered_graph import (
    Parents,
    children_of,
    layers_of,
    reduced,
    topological_order,
)

SMALL: Final = 60
MAX_BOXES_WIDE: Final = 6
"""Boxes in one layer of a graph that is folded."""
MAX_NAMES_WIDE: Final = 12
"""Steps in one layer of a small graph that each keep a box."""
MAX_SINGLED_OUT: Final = 24
"""Steps of a large graph that keep boxes of their own."""
LOUD: Final = ("failed", "waiting", "paused", "running")
"""Statuses that need attention, the most urgent first."""
MIXED: Final = "mixed"
"""The status of a stack whose steps differ, where there is no room for one stack each."""

_QUIET_RANK: Final = len(LOUD)
_NEIGHBOUR_RANK: Final = len(LOUD) - 0.5


@dataclass(frozen=True, slots=True)
class GraphStep:
    """One step, as far as a drawing of its graph needs it."""

    name: str
    status: str
    parents: tuple[int, ...] = ()
    is_marked: bool = False
    """Whether it keeps a box of its own although its status is quiet."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Steps that share a box, by their numbers."""

    members: tuple[int, ...]
    status: str


@dataclass(frozen=True, slots=True)
class FoldedGraph:
    """Boxes, and for each those that it depends on; no dependency follows from others."""

    folds: list[Fold]
    parents: list[list[int]]


def fold(steps: Sequence[GraphStep]) -> FoldedGraph:
    """Decide which steps share a box."""
    parents = reduced([step.parents for step in steps])
    ranks = _ranks(steps, parents)
    layers = layers_of(parents)
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for number, layer in enumerate(layers):
        rows[layer].append(number)
    is_large = len(steps) > SMALL
    folds: list[Fold] = []
    for row in rows:
        if not is_large and len(row) <= MAX_NAMES_WIDE:
            folds += [Fold((number,), steps[number].status) for number in row]
        else:
            folds += _folded_row(row, steps, ranks)
    folded = FoldedGraph(folds, _parents_of(folds, parents))
    return _without_chains(folded, ranks) if is_large else folded


def _ranks(steps: Sequence[GraphStep], parents: Parents) -> list[float]:
    """Return how much each step needs a box of its own: less is more.

    Of many steps only the most urgent are singled out, and their neighbours as long as there is room.
    """
    ranks: list[float] = [_QUIET_RANK] * len(steps)
    urgency = {status: rank for rank, status in enumerate(LOUD)}
    loud = sorted(
        (number for number, step in enumerate(steps) if step.status in urgency or step.is_marked),
        key=lambda number: (urgency.get(steps[number].status, _NEIGHBOUR_RANK), number),
    )[:MAX_SINGLED_OUT]
    room = MAX_SINGLED_OUT - len(loud)
    for number in loud:
        ranks[number] = urgency.get(steps[number].status, _NEIGHBOUR_RANK)
    children = children_of(parents)
    for number in loud:
        for near in (*parents[number], *children[number]):
            if room > 0 and ranks[near] == _QUIET_RANK:
                ranks[near] = _NEIGHBOUR_RANK
                room -= 1
    return ranks


def _folded_row(row: list[int], steps: Sequence[GraphStep], ranks: list[float]) -> list[Fold]:
    """Return the boxes of one layer, at most `MAX_BOXES_WIDE`."""
    single = sorted((n for n in row if ranks[n] < _QUIET_RANK), key=lambda n: (ranks[n], n))
    stacked = [number for number in row if ranks[number] >= _QUIET_RANK]
    stacks = _stacks(stacked, steps, is_mixed=False)
    while single and len(single) + len(stacks) > MAX_BOXES_WIDE:
        stacked.append(single.pop())
        stacks = _stacks(stacked, steps, is_mixed=False)
    if len(stacks) > MAX_BOXES_WIDE:
        stacks = _stacks(stacked, steps, is_mixed=True)
    folds = [Fold((number,), steps[number].status) for number in single] + stacks
    return sorted(folds, key=lambda fold: fold.members[0])


def _stacks(numbers: list[int], steps: Sequence[GraphStep], *, is_mixed: bool) -> list[Fold]:
    by_status: dict[str, list[int]] = {}
    for number in sorted(numbers):
        status = steps[number].status
        key = MIXED if is_mixed and status not in LOUD else status
        by_status.setdefault(key, []).append(number)
    return [
        Fold(tuple(members), steps[members[0]].status if len(members) == 1 else status)
        for status, members in by_status.items()
    ]


def _parents_of(folds: list[Fold], parents: Parents) -> list[list[int]]:
    fold_of = {member: number for number, fold in enumerate(folds) for member in fold.members}
    found: list[list[int]] = []
    for number, fold in enumerate(folds):
        above = {fold_of[parent] for member in fold.members for parent in parents[member]}
        found.append(sorted(above - {number}))
    return reduced(found)


def _without_chains(folded: FoldedGraph, ranks: list[float]) -> FoldedGraph:
    """Merge each box that is the only one after another, where both are quiet and equal.

    Merging two such neighbours changes no other box's neighbours, so one pass suffices.
    """
    folds, parents = folded.folds, folded.parents
    children = children_of(parents)
    is_quiet = [all(ranks[m] >= _QUIET_RANK for m in fold.members) for fold in folds]
    head = list(range(len(folds)))
    for number in topological_order(parents):
        if len(parents[number]) != 1:
            continue
        (parent,) = parents[number]
        is_only = len(children[parent]) == 1
        is_equal = folds[number].status == folds[parent].status
        if is_only and is_equal and is_quiet[number] and is_quiet[parent]:
            head[number] = head[parent]
    members: dict[int, list[int]] = {}
    for number, fold in enumerate(folds):
        members.setdefault(head[number], []).extend(fold.members)
    place = {number: index for index, number in enumerate(members)}
    above: list[set[int]] = [set() for _ in members]
    for number, own in enumerate(parents):
        above[place[head[number]]] |= {place[head[parent]] for parent in own}
    merged = [Fold(tuple(sorted(own)), folds[number].status) for number, own in members.items()]
    return FoldedGraph(merged, [sorted(own - {n}) for n, own in enumerate(above)])
