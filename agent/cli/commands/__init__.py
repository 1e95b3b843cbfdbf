"""The commands, one module per noun.

A command parses its arguments, calls an `AgentClient` (`agent.cli.client`) and prints the result
(`agent.cli.output`). Modules import the rest inside functions: commands stay fast.
`agent.cli.registry` has the commands under their names.
"""
