"""Progress lines while the benchmark runs."""

import sys

from bench.rows import FIGURES, Row


def say(text: str) -> None:
    """Say something at once, apart from the results."""
    print(text, file=sys.stderr, flush=True)


def say_measured(new: Row, number: int, rounds: int, seconds: float) -> None:
    """Tell of one row."""
    what = " ".join(str(new[name]) for name in ("workload", "engine", "store") if new[name])
    rest = {name: value for name, value in new.items() if value is not None}
    case = [
        f"{name}={rest[name]}"
        for name in rest
        if name not in (*FIGURES, "workload", "engine", "store")
    ]
    figures = [f"{name}={rest[name]:g}" for name in FIGURES if name in rest]
    say(f"[{seconds:4.0f} s, round {number} of {rounds}] {' '.join([what, *case, *figures])}")
