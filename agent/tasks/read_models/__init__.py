"""Documents that every surface shows. They read committed rows and change nothing.

- Tasks: `task_documents` (entry point for one task), `task_list` (a page of tasks), `task_overview` (one task
  in bounded size), `task_results` (for a caller that waits), `outputs` (a task's output).
- Steps: `step_attempts`, `transcript` (calls), `spending` (calls of models, and budgets).
- Waits: `person_waits` (questions to people), `listed_waits` (the waits of listed tasks).
- Workflows: `workflow_documents`, `version_facts` (changes since a task's version).
- Others: `state_documents`, `conversations`, `work_documents` (external workers), `load` (`agent top`),
  `isolated_steps` (what holds other steps back after a crash).
- `event_tail`: every event in commit order, for listeners in this process.

They may import `rules`, `state`, `operator` and the store, and none of the packages that run tasks.
"""
