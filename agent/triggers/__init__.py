"""Triggers: what starts tasks by itself, on a schedule or when something outside changes.

- Definitions: `specs` reads them, `sync` keeps the stored triggers equal to the workflows.
- Schedules: `instants` computes their times (`cron`, `local_time`), `schedule_plan` decides what becomes of due
  ones by `catch_up`, `passes` finds them and `schedule_runner` fires them. `asked_runs`: `catch_up: ask`, the
  question to a person about missed ones.
- Watchers: `watchers` has one module for each source, `watch_runner` polls, `watch_plan` decides what becomes of
  items, `watch_listeners` polls early.
- Both: `run_builder` renders the inputs of their tasks; `kept_reader` is the connection of their passes.
- People: `commands` (`state_commands`, `run_commands` with `backfill`, `command_plan`; `command_request` reads them as
  people write them), `check`, `documents`, `schedule_remarks`, `health_checks`. `fate_check` finds instants without a
  fate.

What a firing does to the database, in the worker's commit or in a transaction of its own, is
`agent.tasks.rules.firings.firing`. It may import approvals and everything below. Entry points:
`schedule_runner.run_schedules`, `watch_runner.WatchRunner`, `commands.TriggerCommands`. A new source is
a module in `watchers`, a line in its `registry`, and its keys in `agent.workflows.compile.watch_sources`.
"""
