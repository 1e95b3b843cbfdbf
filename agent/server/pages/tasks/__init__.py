"""Pages of tasks: the list, actions on many, one task, one of its steps, and forks.

- `task_list`, `bulk`: search, filters, and commands on the chosen tasks.
- `task_page`: one task. `step_list` and `task_drawings` (graph, timeline) are parts of it;
  `task_commands` decides its buttons, `task_actions` and `budget_action` are the actions behind them.
- `step_page`: one step with its attempts; `log_page`: its whole log; `fork_page`: where to start again, with which input.
- `step_words`: statuses and waits in words.
"""
