"""The commands, one module for each noun (`agent tasks` is in `tasks`); `agent.cli.registry` has their names.

A command parses its arguments, calls an `AgentClient` (`agent.cli.client`) and prints the result
(`agent.cli.output`). Modules import the rest inside functions: commands stay fast.

Not commands themselves:

- `doctor_checks`: what `agent doctor` checks, besides the checks of channels and triggers in their packages.
- `validation_memory`: what `agent validate` found the last time. `queue_work`: the worker of `agent queue work`.
"""
