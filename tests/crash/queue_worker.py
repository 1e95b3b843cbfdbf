"""An external worker that is killed: each step has one effect in the world, and a diary says who ran it when.

    python -m tests.crash.queue_worker SERVER WORLD DIARY

A line of the diary is written after the agent has answered `running`, and another one when the handler has
ended. The clock is the machine's monotonic one, which all processes share.
"""

import os
import random
import sys
import time
import urllib.request
from pathlib import Path

from agent.queue import Work, Worker, handler

QUEUE = "errands"
HANDLER_SECONDS = 0.2
"""How long a handler takes at most, beside its effect: a kill needs time to hit it."""


def main(server: str, world: str, diary: str) -> None:
    """Work until killed."""
    chance = random.Random()

    def note(what: str, work: Work) -> None:
        line = f"{what} {work.input['path']} {os.getpid()} {time.monotonic()}\n"
        # One write of a short line is not mixed with others.
        with Path(diary).open("a", encoding="utf-8") as file:
            file.write(line)

    @handler(QUEUE)
    def errand(work: Work) -> dict[str, str]:
        note("begin", work)
        time.sleep(chance.uniform(0, HANDLER_SECONDS / 2))
        request = urllib.request.Request(
            world + work.input["path"],
            method="POST",
            headers={"Idempotency-Key": work.key or work.input["path"]},
        )
        with urllib.request.urlopen(request, timeout=60):
            pass
        time.sleep(chance.uniform(0, HANDLER_SECONDS / 2))
        note("end", work)
        return {"done": work.input["path"]}

    Worker(errand, server=server).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
