"""How commands reach an agent. Entry point: `agent.cli.session.client`, which opens a client.

- `base` declares `AgentClient`. Commands do not know which client they use. Clients do not print.
- `local` (tasks: `local_tasks`) works on the database of this machine. `local_worker` runs tasks in this
  process where no agent does. `submission` makes the task that `agent run` starts; `compiled_files` remembers
  which workflow files were compiled.
- `remote` (tasks: `remote_tasks`) calls the HTTP API of another agent, through `transport`. `address` finds the
  agent's address and the token for it.

They may import everything but the commands and the output of the command line.
"""
