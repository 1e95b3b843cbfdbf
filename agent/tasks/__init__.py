"""The engine: what changes tasks and steps, and when.

**The task's row is the lock and the queue.** Every change to a task or its steps happens in a
transaction that has locked the task's row. `tasks.next_wake_time` is when to visit the task next.

**A commit is one transaction of a worker**: it applies the outcomes of finished attempts with all
consequences, records what running attempts asked for, creates submitted tasks, and claims as many due
steps as there are free slots.

**Never assume success.** `rescue` takes over the steps of a dead worker: it applies a recorded result;
everything else is unknown, and the step goes back to pending with one more attempt.

- `worker`: the loop that drives commits, and the attempts in flight. Entry point: `worker.worker.Worker`.
- `commit`: from a batch to a transaction, and what follows a failure. Entry point: `commit.committer`.
- `rules`: what a transaction may do to a task. `state`: rows in memory, and the only code that writes a
  status (`state.transitions`).
- `rescue`: dead workers, lost attempts, orphaned processes. `operator`: commands of people.
- `read_models`: documents for the API and the command line. `checker`: invariants over a whole database.
- `submission`: the one way to start a workflow. `errors`: not found, refused.

The SQL is in `agent.store`. Imports point downwards: worker, rescue, commit, read_models, operator,
checker, rules, state. Nothing here imports `agent.server`, `agent.channels` or `agent.cli`.
"""
