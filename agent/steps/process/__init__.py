"""Commands of steps. Entry point: `gated_process.spawn`, which starts a command behind its gate.

`processes` identifies processes and ends process groups, also those that outlived their agent
(`agent.tasks.rescue.orphan_processes`). `environment` makes the environment of a command, and
`output_capture` reads its output. `resource_limits` sets the limits of a process. `secret_command` reads secrets by
commands of the configuration. It imports `attempt` and `types`.
"""
