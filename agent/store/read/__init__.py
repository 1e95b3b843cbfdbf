"""SQL that only reads. Entry points: `views` for documents, `audit.task_reads.collect` for the checker.

- Tasks: `views` (by column name), `task_list` (filters and search), `activity` (status, or `waiting`), `overview` (one
  task in bounded size), `step_views` (one step), `held_tasks` (for a restore), `trace_rows`.
- Others: `workflow_list`, `conversation_views`, `work_views` (external workers), `recent_events`, `spend` (cost of
  models).
- The agent at a glance: `attention` (what needs a person), `load_rows` (what runs), `health` (`agent doctor`).
- The checker: `audit`, a package of its own.

It imports `store.db` and `store.engine`.
"""
