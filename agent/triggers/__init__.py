"""Triggers: they start tasks on a schedule, or when a source outside changes.

- Definitions: `specs` reads them, `sync` keeps the stored triggers equal to the workflows.
- Schedules: `schedules` computes their times, plans and fires them. `asked_runs`: `catch_up: ask`, the question to a
  person about missed instants.
- Watchers: `watchers` has the sources, `watch_runner` polls, `watch_plan` decides which items start tasks,
  `watch_listeners` polls early.
- Both: `run_builder` renders the inputs of their tasks; `kept_reader` is the connection of their passes,
  `local_time` reads and writes times in a zone.
- People: `commands`, `check` (for `agent watchers check`), `documents`, `health_checks` (for `agent doctor`).

What a firing does to the database, in the worker's commit or in a transaction of its own, is
`agent.tasks.rules.firings`. It may import approvals and everything below. Entry points:
`schedules.schedule_runner`, `watch_runner.WatchRunner`, `commands.trigger_commands`. A new source is
a module in `watchers`, a line in its `registry`, and its keys in `agent.workflows.compile.watch_sources`.
"""
