"""`python -m bench`: measure, print the tables, keep the rows."""

import signal
import sys

from bench import docs, machine, options, progress, report, targets, workloads
from bench.results import Results
from bench.stores import Stores


def main() -> int:
    """Run the benchmarks that were asked for; return the exit status."""
    asked = options.read()
    # So that the server of the benchmark ends with the benchmark.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    described = machine.describe()
    for name, value in described.items():
        progress.say(f"{name}: {value}")
    with Stores() as stores:
        results = Results(workloads.run(asked, stores), described)
    results.save(asked.output)
    found = targets.compare(results.rows)
    report.show(results.rows, found)
    print(f"\nwritten to {asked.output}")
    if asked.writes_docs:
        docs.write(results)
        print(f"figures put into {docs.PAGE}")
    verdicts = [comparison.is_met for comparison in found if comparison.is_met is not None]
    # Nothing compared is nothing kept: a strict run must not pass for having measured too little.
    is_kept = bool(verdicts) and all(verdicts)
    return 1 if asked.is_strict and not is_kept else 0


if __name__ == "__main__":
    sys.exit(main())
