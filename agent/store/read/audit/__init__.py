"""SQL of the checker: rows as they are stored, for `agent.tasks.checker` to compare with each other.

- `task_reads` reads whole tasks, a page at a time, as the classes of `rows`; it also has the questions about
  tasks and workers that span the whole database.
- One module for each other subject: `agent_calls`, `conversations`, `messages`, `state`, `triggers`, `work`.

Entry point: `task_reads.collect`. It imports `store.db` and `store.engine`.
"""
