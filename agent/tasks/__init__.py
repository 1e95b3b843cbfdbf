"""The engine: what changes tasks and steps, and when.

**The task's row is the lock and the queue.** Every change to a task or its steps happens in a
transaction that has locked the task's row. `tasks.next_wake_time` says when to look at it next.

**A turn is one transaction** (`turn`): it settles the outcomes of finished attempts with all their
consequences, records what running attempts asked for, creates submitted tasks, and claims as many
due steps as there are free slots. `worker` drives turns from an asyncio loop, with the database in
a thread of its own.

**A unit** (`locked`) is one locked task in memory with those of its steps that a transaction touches.
`transitions` is the only module that writes statuses, `advance` the one ending of every
transaction; the SQL is in `agent.store`.

**Never assume success.** What a dead worker left is taken over by `takeover`: a result on record is
applied, everything else is unknown and goes back to pending with one attempt more.
"""
