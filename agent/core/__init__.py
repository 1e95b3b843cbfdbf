"""Small parts that every layer uses. They import nothing else of `agent`.

- `clock`: the only source of time. `ids`: ids, idempotency keys and randomness. `backoff`: delays
  between retries.
- `state_machine`: the state machines of tasks, steps, calls and approvals, as data. `waits`: what a
  waiting step waits on.
- `event_loop`: the loop that outlives what a step's code does to it. `thread_bridge`: runs blocking
  functions in threads, for an event loop.
- `redaction` and `secret_forms`: keep secrets out of everything that is written. `escape`: makes text
  from outside safe to show. `scopes`: what a token may do. `audit`: the log of operator commands.
- `process_lock` and `database_file`: one daemon per SQLite file. `file_trust`: who can change a file.
  `file_sync`, `file_descriptors`: durable files, and the limit on open ones.
- `logging`, `log_limit`: structlog's set-up. `key_values`: `key=value` as people type it. `tracebacks`: the frames of
  a user's own code.
"""
