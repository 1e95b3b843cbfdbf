"""A graph as boxes and curves with positions, which a template writes as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.server.pages.drawings.coordinates import place
from agent.server.pages.drawings.crossing_reduction import order_rows
from agent.server.pages.drawings.folding import MIXED, Fold, GraphStep, fold
from agent.server.pages.drawings.layered_graph import LayeredGraph, layered
from agent.server.pages.drawings.text_width import fit, text_width

BOX_HEIGHT: Final = 36.0
LAYER_GAP: Final = 32.0
BOX_GAP: Final = 16.0
MARGIN: Final = 8.0
FONT_PX: Final = 13.0
NOTE_PX: Final = 12.0
TEXT_LEFT: Final = 32.0
"""Where a box's text begins: the sign of its status stands before it."""
TEXT_RIGHT: Final = 12.0
NOTE_GAP: Final = 6.0
MIN_WIDTH: Final = 84.0
MAX_WIDTH: Final = 200.0
_FEW_NAMES: Final = 12
_PLURALS: Final = {
    "succeeded": "done",
    "kept": "kept",
    "pending": "not started",
    MIXED: "steps",
    "defined": "steps",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A step to draw: its place in the graph, and the text beside its name."""

    step: GraphStep
    note: str = ""
    """A short remark, such as `×12` or `9/12`."""
    is_group: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """One rectangle with its text."""

    x: float
    y: float
    width: float
    status: str
    text: str
    note: str
    note_x: float
    title: str
    """Everything that the box stands for, for pointers and screen readers."""
    names: tuple[str, ...]
    is_stack: bool
    """Drawn as more than one card: a group, or several steps."""

    @property
    def step(self) -> str | None:
        """The step that the box shows, if it is one."""
        return self.names[0] if len(self.names) == 1 else None


@dataclass(frozen=True, slots=True)
class Edge:
    """One curve between two boxes, by their numbers."""

    source: int
    target: int
    path: str
    is_dashed: bool
    """Whether nothing goes or went along it: the step after it was skipped."""


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """All of a drawing, from the top left."""

    width: float
    height: float
    boxes: list[Box]
    edges: list[Edge]
    step_count: int

    @property
    def summary(self) -> str:
        """The drawing as text, for screen readers."""
        steps = f"{self.step_count} step{'s' * (self.step_count != 1)}"
        if len(self.boxes) == self.step_count:
            return f"Graph of {steps}"
        return f"Graph of {steps}, folded into {len(self.boxes)} boxes"


def draw_graph(nodes: Sequence[Node]) -> GraphDrawing:
    """Fold, lay out and label a graph."""
    folded = fold([node.step for node in nodes])
    labels = [_Label.of(box, nodes) for box in folded.folds]
    graph = layered(folded.parents)
    widths = [label.width for label in labels]
    x = place(graph, order_rows(graph), widths, BOX_GAP)
    boxes = [
        Box(
            x=_rounded(MARGIN + x[number] - label.width / 2),
            y=_top(graph.layer[number]),
            width=_rounded(label.width),
            status=box.status,
            text=label.text,
            note=label.note,
            note_x=_rounded(label.note_left),
            title=label.title,
            names=tuple(nodes[member].step.name for member in box.members),
            is_stack=len(box.members) > 1 or nodes[box.members[0]].is_group,
        )
        for number, (box, label) in enumerate(zip(folded.folds, labels, strict=True))
    ]
    edges = [
        Edge(
            source, target, _path(graph, x, source, target, passed), _is_idle(folded.folds[target])
        )
        for (source, target), passed in graph.routes.items()
    ]
    rights = [x[n] + (widths[n] / 2 if n < len(widths) else 0.0) for n in range(len(x))]
    rows = max(graph.layer, default=-1) + 1
    return GraphDrawing(
        width=_rounded(max(rights, default=0.0) + 2 * MARGIN),
        height=2 * MARGIN + rows * BOX_HEIGHT + max(rows - 1, 0) * LAYER_GAP,
        boxes=boxes,
        edges=edges,
        step_count=len(nodes),
    )


@dataclass(frozen=True, slots=True)
class _Label:
    """The text of a box, cut so that it fits, and the width that it needs."""

    text: str
    note: str
    note_left: float
    width: float
    title: str

    @staticmethod
    def of(fold: Fold, nodes: Sequence[Node]) -> "_Label":
        names = [nodes[member].step.name for member in fold.members]
        if len(names) == 1:
            node = nodes[fold.members[0]]
            text, note = names[0], node.note
            title = f"{text}{f' {note}' if note else ''}: {fold.status}"
        else:
            text, note = f"{len(names)} {_PLURALS.get(fold.status, fold.status)}", ""
            more = len(names) - _FEW_NAMES
            title = ", ".join(names[:_FEW_NAMES]) + (f" and {more} more" if more > 0 else "")
        beside = MAX_WIDTH - TEXT_LEFT - TEXT_RIGHT - NOTE_GAP - text_width(text, FONT_PX)
        note = fit(note, NOTE_PX, max(MAX_WIDTH / 3, beside))
        note_width = NOTE_GAP + text_width(note, NOTE_PX) if note else 0.0
        text = fit(text, FONT_PX, MAX_WIDTH - TEXT_LEFT - TEXT_RIGHT - note_width)
        text_right = TEXT_LEFT + text_width(text, FONT_PX)
        width = max(MIN_WIDTH, text_right + note_width + TEXT_RIGHT)
        return _Label(text, note, text_right + NOTE_GAP, width, title)


def _is_idle(target: Fold) -> bool:
    return target.status == "skipped"


def _top(layer: int) -> float:
    return MARGIN + layer * (BOX_HEIGHT + LAYER_GAP)


def _path(
    graph: LayeredGraph, x: list[float], source: int, target: int, passed: Sequence[int]
) -> str:
    """Return a curve that leaves and reaches boxes downwards, and runs straight past others."""
    here = x[source] + MARGIN
    y = _top(graph.layer[source]) + BOX_HEIGHT
    parts = [f"M{here:.1f} {y:.1f}"]
    for stop in (*passed, target):
        there, top = x[stop] + MARGIN, _top(graph.layer[stop])
        if abs(there - here) < 0.05:
            parts.append(f"V{top:.1f}")
        else:
            middle = (y + top) / 2
            parts.append(f"C{here:.1f} {middle:.1f} {there:.1f} {middle:.1f} {there:.1f} {top:.1f}")
        here, y = there, top
        if stop != target:
            y = top + BOX_HEIGHT
            parts.append(f"V{y:.1f}")
    return "".join(parts)


def _rounded(value: float) -> float:
    return round(value, 1)
