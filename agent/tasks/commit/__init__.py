"""The commit path of a worker: one batch becomes one transaction.

Entry point: `committer.Committer`, with `send(batch, capacity)` and `complete(tx)`. It runs in the
database thread and alone owns:

- `session`: the connection, the worker's identity, and the number of its last transaction.
- `pipeline`: transactions in flight whose COMMIT is not confirmed yet (PostgreSQL).
- `task_cache`: tasks as the last commits left them.
- `attempt_loader`: claimed steps until their attempts can start; `attempt_inputs` reads their inputs,
  `known_tasks` keeps what need not be read again, `blocked_steps` wait for a download.

`faults` is the table of responses to failures, `split` commits a bad batch part by part. Where the answer
to COMMIT is lost, `pipeline` (`Pipeline._find_out`) reads the worker's row to find out whether it took effect.

One transaction, top to bottom: `transaction.run` calls `begin` (fence, locks, reads), `due_tasks`
(timers, deadlines), `apply` (entries and completions), `work` (calls of external workers; `work_reads` is what it reads), then creates,
claims and writes. `scope` is what they share, `batch` what goes in and comes out, `large_values` what is
stored before. `metrics` counts commits and their time.

It may import `agent.tasks.rules`, `agent.tasks.state`, `agent.tasks.read_models` and the layers below
`agent.tasks`; not `agent.tasks.worker` or `agent.tasks.rescue`.
"""
