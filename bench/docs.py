"""Putting the figures into the documentation; `python -m bench.docs` takes those of the last run."""

from collections.abc import Iterable, Sequence
from typing import Final

from bench import chart, report, targets
from bench.options import LATEST
from bench.process import ROOT
from bench.results import Results

PAGE: Final = ROOT / "docs" / "performance.md"
PICTURE: Final = PAGE.with_suffix(".svg")
_BEGIN: Final = "<!-- figures: written by `make bench ARGS=--write-docs` -->"
_END: Final = "<!-- end of the figures -->"


def write(results: Results) -> None:
    """Replace the figures on the page, and its picture, by those of a run."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} has lost its marks: {_BEGIN} … {_END}")
    PICTURE.write_text(chart.draw(results.rows), encoding="utf-8")
    text = "\n".join((begin, "", *_figures(results), "", end))
    PAGE.write_text(before + text + after, encoding="utf-8")


def _figures(results: Results) -> Iterable[str]:
    yield from _table(("machine", ""), [[name, value] for name, value in results.machine.items()])
    yield ""
    yield f"![Steps a second at 50 in flight]({PICTURE.name})"
    yield ""
    yield "What is promised, and what this run gave:"
    yield ""
    yield from _table(report.COMPARED, report.compared(targets.compare(results.rows)))
    yield ""
    yield "Everything that was measured (medians of the rounds; empty where a figure has no sense):"
    yield ""
    yield from _table(report.MEASURED, report.measured(results.rows))


def _table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"


if __name__ == "__main__":
    write(Results.load(LATEST))
