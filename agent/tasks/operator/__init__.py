"""Commands of people on tasks: pause, resume, cancel, retry, fork, signal, resolve, budget.

Entry point: `operator.Operator`. Each command is one transaction under the task's lock (`task_locks`).

- `state_table`: which command is allowed in which state. `budget_pause`: raises budgets and resumes families.
- `newer_versions`: the version that a retry or a fork starts from. `restore_hold`: tasks that a restore paused.
- `state_commands`: values of `state`. `work_commands`: work of external workers, and snapshots.
  `conversations`: their deletion.
- `agent_call`: commands that agents give through the tool `engine`. `step_names`: steps and signals by name.

It may import `rules`, `state` and the store.
"""
