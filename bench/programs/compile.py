"""How long it takes to parse, validate and compile a large workflow file."""

import time
from pathlib import Path
from typing import Any

from agent.workflows import loader
from bench import process, usage


def main(file: str, steps: int) -> dict[str, Any]:
    """Measure one load in a fresh process, as a command would."""
    start = time.perf_counter()
    loaded = loader.load(Path(file))
    elapsed = time.perf_counter() - start
    assert len(loaded.graph.steps) == steps
    return {"steps": steps, "seconds": round(elapsed, 3), "rss_mb": usage.rss_mb()}


if __name__ == "__main__":
    process.answer(main)
