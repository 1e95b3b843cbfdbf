"""Small parts that every layer uses. They import nothing else of `agent`.

- Time and ids: `clock` is the only source of time, `local_zone` the zone for people; `ids` has ids, idempotency
  keys and randomness. `backoff` is the formula of all delays after failures; the delays of a step's `retry:`
  are `agent.workflows.graph.RetryPolicy.delay_after`.
- States: `state_machine` (tasks, steps, calls, approvals, triggers and work, as data), `waits` (what a waiting step
  waits on), `work_words` (who has its work, in words), `state_names` (names in `state`), `chat_origin` (where a task was started in a chat).
- Threads and loops: `event_loop` outlives what a step's code does to it; `thread_bridge` runs blocking functions in
  threads.
- Secrets and safety: `secret_reference` is how a secret is named, `redaction` hides secrets in everything that is
  written, `secret_forms` has the encoded forms by which it finds them. `escape` makes text from outside safe to show.
  `scopes`: what a token may do.
- Packages: `files` (locks, trust, descriptors), `logs` (structlog, the audit log), `quick_classes` (models without
  pydantic).
- Values: `plain_json`, `money`, `key_values` (`key=value` as people type it), `search_terms` (words of a text).
- `failure_causes`: the exceptions behind an exception, and whether a certificate was refused.
- `lazy_module`: a module that is imported when it is first used.
"""
