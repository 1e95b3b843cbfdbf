"""The siege: agents under faults, judged only from outside.

    python -m tests.siege --sqlite 100 --postgres 100 [--seed 1] [--plant duplicate]

It starts real agents, remotes with a ledger of their own, and a PostgreSQL; kills, stops and
restarts them at random moments; answers as a person would; and compares the remotes' ledger with
what tasks promise. Nothing of the engine is imported: neither its checker nor its database is used.
The exit code is 1 if a promise is broken.
"""

import argparse
import random
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.siege.campaign import Result, besiege
from tests.siege.faults import ALL
from tests.siege.judging import violations
from tests.siege.planting import PLANTED, plant

_SHOWN = 40


def main() -> int:
    """Run the requested sieges in parallel, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.siege", description=__doc__)
    parser.add_argument("--sqlite", type=int, default=100, metavar="FAULTS")
    parser.add_argument("--postgres", type=int, default=100, metavar="FAULTS")
    parser.add_argument("--seed", type=int, default=None, help="by default another each time")
    parser.add_argument(
        "--plant", choices=sorted(PLANTED), help="falsify the record: the siege must then fail"
    )
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    wanted = [(name, getattr(asked, name)) for name in ("sqlite", "postgres")]
    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun:5.0f} s  {line}", flush=True)

    with ThreadPoolExecutor(max_workers=2) as pool:
        running = [
            pool.submit(besiege, name, faults, seed, say) for name, faults in wanted if faults
        ]
        results = [each.result() for each in running]
    for result in results:
        if asked.plant is not None:
            print(f"{result.database}: planted: {plant(result.record, asked.plant)}")
            result.violations += violations(result.record)
    print_table(results)
    return 1 if any(result.violations for result in results) else 0


def print_table(results: list[Result]) -> None:
    """Print the counts of each siege as the columns of one table, with the violations below."""
    columns = [rows_of(result) for result in results]
    names = list(dict.fromkeys(name for column in columns for name in column))
    print("\n| | " + " | ".join(result.database for result in results) + " |")
    print("|---|" + "---:|" * len(results))
    for name in names:
        print(f"| {name} | " + " | ".join(f"{column.get(name, 0):,}" for column in columns) + " |")
    for result in results:
        for sentence in result.violations[:_SHOWN]:
            print(f"{result.database}: {sentence}")
        if len(result.violations) > _SHOWN:
            print(f"{result.database}: and {len(result.violations) - _SHOWN} more")
        if result.directory.exists():
            print(f"{result.database}: what it left is in {result.directory}")


def rows_of(result: Result) -> dict[str, int]:
    """Count what happened in a siege."""
    record = result.record
    sent = [each for all_sent in record.sent.values() for each in all_sent]
    verdicts = Counter(verdict for given in record.verdicts.values() for verdict in given.values())
    ended = Counter(document["status"] for document in record.documents.values())
    return {
        "faults": sum(result.faults.values()),
        **{f"— {fault}": result.faults[fault] for fault in ALL},
        "tasks acknowledged": len(record.tickets),
        "tasks succeeded, children included": ended["succeeded"],
        "tasks failed, as they must": ended["failed"],
        "requests and commands seen": len(sent),
        "effects": sum(each.acted for each in sent),
        "requests answered badly or not at all": sum(
            each.answer in ("cut", "500", "stall") for each in sent
        ),
        "repeated under a known key": sum(each.answer == "replayed" for each in sent),
        "remotes asked whether they acted": sum(map(len, record.confirmations.values())),
        "person: it happened": verdicts["done"] + verdicts["fail"],
        "person: it did not, do it": verdicts["retry"],
        "violations": len(result.violations),
        "seconds": round(result.seconds),
    }


if __name__ == "__main__":
    sys.exit(main())
