"""The output of commands. Entry points: `terminal`, `follow.follow`, `task_view`.

- `terminal`: consoles, marks, times, JSON. `table`: tables that fit. `large_text`, `log_text`: long values and logs.
- Tasks: `task_view`, `step_view`, `wait_view`, `question_view`, `transcript` (calls).
- While a task runs: `follow`, `live_view`, `inline_answers` (questions, answered at once), `line_input`.
- Schedules and watchers: `trigger_view`, `definition_lines`, `trigger_preview`. `top_view`: `agent top`.

It may import `agent.cli.client` and what is below.
"""
