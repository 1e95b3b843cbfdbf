"""Triggers: what starts tasks by itself, on a schedule or when something outside changes.

`specs` reads the definitions of triggers, `sync` keeps the stored triggers equal to the workflows.
`instants` computes the times of a schedule (`cron` by the rules of Debian's cron, `local_time` where
clocks change), `schedule_remarks` previews them for `agent validate`, and `schedule_plan` decides what
becomes of due instants;
`watchers` has one module a source and `watch_plan` decides what becomes of its items. `passes` are
the periodic passes over due triggers. What a firing does to the database, in the worker's commit or
in a transaction of its own, is `agent.tasks.rules.firing`. `commands` has the operator's commands.
`command_request` reads them as people write them, `check` polls a watcher and records nothing, and
`documents` shows triggers.

It may import approvals and everything below. Entry points: `schedule_runner.run_schedules`,
`passes.run_watchers`. A new source is a module in `watchers`, a line in its `registry`, and its keys
in `agent.workflows.compile.watch_sources`.
"""
