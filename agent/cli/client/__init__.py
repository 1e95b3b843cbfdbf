"""How commands reach an agent.

`base` declares `AgentClient`. `local` works on the database of this machine, and `local_worker` runs
tasks in this process where no agent does. `remote` calls the HTTP API of another agent through
`transport`. Commands do not know which client they use. Clients do not print.

Entry point: `agent.cli.session.client`, which opens one. They may import everything but the commands and
the output of the command line.
"""
