"""Eight workers of Absurd, each a process with its own connection, drain a queue of jobs.

They poll far more often than by default, which is to their advantage.
"""

import threading
from typing import Any, Final

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

from bench import drain, process

_QUEUE: Final = "bench"
_POLL_SECONDS: Final = 0.005


def main(url: str, workers: int = 0, jobs: int = 0) -> dict[str, Any]:
    """Fill a queue and measure how fast the workers drain it; without jobs, be one of them."""
    if not jobs:
        return _work(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
        client = Absurd(url, queue_name=_QUEUE)
        client.create_queue(_QUEUE)
        for number in range(jobs):
            client.spawn("job", {"number": number}, queue=_QUEUE)
        client.close()

        def is_empty() -> bool:
            left = connection.execute(
                f"SELECT 1 FROM absurd.t_{_QUEUE} WHERE state <> 'completed' LIMIT 1"
            )
            return left.fetchone() is None

        used = drain.drain("absurd_work", {"url": url}, workers, is_empty)
    return drain.figures(jobs, *used)


def _work(url: str) -> dict[str, Any]:
    client = Absurd(url, queue_name=_QUEUE)

    @client.register_task(name="job")
    def job(given: Any, _: Any) -> Any:
        return given["number"]

    client.list_queues()
    thread = threading.Thread(
        target=client.start_worker, kwargs={"poll_interval": _POLL_SECONDS}, daemon=True
    )

    def stop() -> None:
        client.stop_worker()
        thread.join()
        client.close()

    return drain.serve(thread.start, stop)


if __name__ == "__main__":
    process.answer(main)
