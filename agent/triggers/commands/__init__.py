"""Commands on triggers: pause, resume, reset, run, skip, backfill.

- `command_request` reads a request as people write it; `trigger_commands` has the commands for every surface.
- `state_commands`: pause, resume, reset. `run_commands`: run now, skip, and `backfill` (past instants).
- `command_plan`: the plan that a command makes, and its result.

Entry points: `trigger_commands.TriggerCommands`, and `command_request.perform` for commands as text. The imports are
those of `agent.triggers`.
"""
