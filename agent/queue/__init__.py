"""The client of external workers: a program outside takes the steps of kind `worker` from a queue.

    from agent.queue import Work, Worker, handler

    @handler("reviews")
    def review(work: Work) -> dict:
        return {"verdict": judge(work.input["text"], key=work.key)}

    Worker(server="http://127.0.0.1:8420", token="…").run()

It needs no configuration and no database of the agent, only its HTTP address and a token with the scope
`work:QUEUE`. Nothing heavy is imported: requests go through the standard library.

- `handlers`: `@handler`. `worker`: `Worker`, its threads and its end. `claims`, `heartbeats`, `report`: what it
  sends. `work`: the argument of a handler. `outcome`: the meaning of its end. `execution`: how it is called.
- `connection`: one request. `lease`: the requests of one claimed step.
- `command`: the handler of `agent queue work`, which runs a command for each step.
- `errors`: the exceptions that handlers and the client raise.

Every request may be repeated: a claim has a token of the client's choice, everything else is fenced by the
lease. A result is sent until the agent has recorded it or answers 410; a worker that must end before that raises.
"""

from agent.queue.errors import Final, LeaseLostError, QueueError, Retry
from agent.queue.handlers import handler
from agent.queue.outcome import Result
from agent.queue.work import AsyncWork, Work
from agent.queue.worker import Worker

__all__ = [
    "AsyncWork",
    "Final",
    "LeaseLostError",
    "QueueError",
    "Result",
    "Retry",
    "Work",
    "Worker",
    "handler",
]
