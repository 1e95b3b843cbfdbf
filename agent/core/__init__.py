"""Small parts that every layer uses. They import nothing else of `agent`.

- Time and ids: `clock` is the only source of time, `local_zone` the zone for people; `ids` has ids, idempotency
  keys and randomness. `backoff` is the formula of all delays after failures; the delays of a step's `retry:`
  are `agent.workflows.graph.RetryPolicy.delay_after`.
- States: `state_machine` (tasks, steps, calls, approvals, triggers and work, as data), `waits` (what a waiting step
  waits on), `work_words` (who has its work, in words), `state_names` (names in `state`), `chat_origin` (where a task was started in a chat).
- Threads and loops: `event_loop` outlives what a step's code does to it; `thread_bridge` runs blocking functions in
  threads.
- Secrets and safety: `redaction` and `secret_forms` keep secrets out of everything that is written,
  `secret_reference` and `environment_file` are how they are named and found. `escape` makes text from outside safe to
  show. `scopes`: what a token may do. `audit`: the log of operator commands.
- Files: `process_lock` and `database_file` (one daemon for a SQLite file), `file_trust` (who can change a file),
  `confined_files` (nothing outside one directory), `file_sync`, `file_descriptors`, `disk_space`, `user_cache` (what
  commands remember).
- Logs: `logging` and `log_limit` set structlog up, `console_log` writes for terminals; `tracebacks` shows the frames of
  a user's own code.
- Values: `plain_json`, `money`, `key_values` (`key=value` as people type it), `search_terms` (words of a text).
- Quick starts: `lazy_module`, `quick_dataclasses`; `quick_models` (models without pydantic) with `quick_fields`, how they
  are declared, `quick_checks`, what they accept, and `pydantic_classes`, pydantic's own for all else.
"""
