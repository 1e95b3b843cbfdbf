"""Schedules: their instants, the plan for due ones, and the loop that fires them.

- Times: `instants` computes the instants of a definition, from `cron` (fields in the schedule's zone) or an interval.
- Decision: `schedule_plan` decides which due instants start a task and which were missed, by `catch_up`.
- Running: `passes` reads due schedules and plans them, `schedule_runner` is the daemon's loop around that.
- Checks: `schedule_remarks` (likely mistakes, for `validate`), `fate_check` (every instant has a fate,
  for `doctor --deep`).

Entry point: `schedule_runner.run_schedules`. The imports are those of `agent.triggers`.
"""
