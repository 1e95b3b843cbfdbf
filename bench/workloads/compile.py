"""Loading a workflow file of 2,000 steps."""

from collections.abc import Iterator

from bench import definitions
from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores


def run(asked: Options, stores: Stores, _: int) -> Iterator[Row]:
    """Measure one load in a fresh process."""
    if "agent" not in asked.engines:
        return
    steps = 200 if asked.is_quick else 2000
    with stores.directory() as directory:
        path = directory / "diamonds.yaml"
        path.write_text(definitions.diamonds_file(steps), encoding="utf-8")
        yield row("agent", None, "compile", **measure("compile", file=str(path), steps=steps))
