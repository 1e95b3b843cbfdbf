"""Small parts that every layer uses. They import nothing else of `agent`.

- `clock`: the only source of time. `ids`: ids, idempotency keys and randomness.
- `state_machine`: the state machines of tasks, steps, calls and approvals, as data.
- `scopes`: what a token may do. `escape`: makes text from outside safe to show.
- `process_lock`: one daemon per SQLite database. `logging`: structlog's set-up.
- `thread_bridge`: runs blocking work in a thread of its own, for an event loop.
"""
