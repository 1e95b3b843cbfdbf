"""What the command line may ask for."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ENGINES: Final = (
    "agent", "dbos", "absurd", "absurd8", "langgraph", "procrastinate", "raw", "apscheduler",
)  # fmt: skip
STORES: Final = ("sqlite", "postgres")
WORKLOADS: Final = (
    "W", "workers", "work", "answer", "recovery", "wide", "claim", "yaml", "compile", "rest", "triggers",
    "pages", "cli",
)  # fmt: skip

LATEST: Final = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True, slots=True)
class Options:
    """One run of the benchmarks."""

    workloads: tuple[str, ...]
    stores: tuple[str, ...]
    engines: tuple[str, ...]
    rounds: int
    is_quick: bool
    is_strict: bool
    writes_docs: bool
    output: Path

    @property
    def is_whole(self) -> bool:
        """Whether everything is measured, and at its full size."""
        parts = (self.workloads, self.stores, self.engines)
        return parts == (WORKLOADS, STORES, ENGINES) and not self.is_quick


def read(arguments: list[str] | None = None) -> Options:
    """Read the command line; exits with a message if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure the engine beside its peers."
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME[,NAME]",
        help="only these engines, stores or workloads: names of one sort add up, and names of"
        f" different sorts narrow each other. Engines: {', '.join(ENGINES)}; stores:"
        f" {', '.join(STORES)}; workloads: {', '.join(WORKLOADS)}",
    )
    parser.add_argument("--rounds", type=int, default=None, help="default: 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="small: shows that it runs, no more")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument(
        "--write-docs", action="store_true", help="put the figures into docs/performance.md"
    )
    parser.add_argument("--output", type=Path, default=LATEST, help="where the rows are written")
    given = parser.parse_args(arguments)
    rounds = given.rounds if given.rounds is not None else (1 if given.quick else 3)
    if rounds < 1:
        parser.error("--rounds must be at least 1")
    names = {name for names in given.only for name in names.split(",")}
    unknown = names - {*ENGINES, *STORES, *WORKLOADS}
    if unknown:
        parser.error(f"--only: nothing is called {', '.join(sorted(unknown))}")
    asked = Options(
        workloads=_chosen(WORKLOADS, names),
        stores=_chosen(STORES, names),
        engines=_chosen(ENGINES, names),
        rounds=rounds,
        is_quick=given.quick,
        is_strict=given.strict,
        writes_docs=given.write_docs,
        output=given.output,
    )
    if asked.writes_docs and not asked.is_whole:
        parser.error("--write-docs takes a whole run: without --only and --quick")
    return asked


def _chosen(all_of_a_sort: tuple[str, ...], names: set[str]) -> tuple[str, ...]:
    return tuple(name for name in all_of_a_sort if name in names) or all_of_a_sort
