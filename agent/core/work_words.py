"""What a step of the kind `worker` waits for, in words: the same on every surface."""


def worker_wait(queue: str, state: str | None, worker: str | None) -> str:
    """Return who has the work; `state` and `worker` are those of its lease, if there is one."""
    if worker is None:
        return f"waits for a worker of the queue {queue!r}"
    if state == "running":
        return f"running on the worker {worker!r} of the queue {queue!r}"
    return f"claimed by the worker {worker!r} of the queue {queue!r}"
