"""The worker: an asyncio loop that collects completions, commits them and starts what it claimed.

- `worker`: the loop. Entry point: `Worker.run`. `shutdown`: its end. `results`: what follows a commit
  or a poll.
- `slots`: how much the next batch may claim. `poll_schedule`: when to poll.
- `outbox`: what waits for the next batch. `batch_sender`: batches to the committer and back.
- `attempts`: the attempts in flight. `journal`: how they get things recorded. `submitters`: who waits
  for a new task.
- `wake_listener`: wake-ups from other processes. `peers`: checks on the other workers.
- `external_values`, `uploads`, `downloads`, `outages`: large values outside the database.
- `health`: why the worker cannot work at the moment. `watchdog`: a blocked event loop.

Only the committer uses the worker's connection; the worker calls it in the database thread. This
package may import every other package of `agent.tasks` except `operator`, `read_models` and `checker`.
"""
