"""The worker: an asyncio loop that collects completions, commits them and starts what it claimed.

- The loop: `worker` (entry point: `Worker.run`), `results` (what follows a commit or a poll), `failures`
  (what follows a failed one), `shutdown` (its end), `slots` (how much the next batch may claim),
  `poll_schedule` (when to poll).
- Commits: `outbox` (what waits for the next batch), `batch_sender` (batches to the committer and back),
  `state_conflicts` (completions that render `set_state` again).
- Attempts: `attempts` (those in flight), `journal` (how they get things recorded).
- Callers that wait for a commit: `submitters` (of new tasks), `firings` (of plans for triggers),
  `external_workers` (their calls, and claims that wait for work), `answering` (since when this process
  answers them).
- Other processes: `wake_listener` (their commits), `peers` (workers that have died).
- `large_values`: values that are stored outside the database.
- `health`: why the worker cannot work at the moment. `watchdog`: a blocked event loop.

Only the committer uses the worker's connection; the worker calls it in the database thread. This package may
import every other package of `agent.tasks`; no other one imports it.
"""
