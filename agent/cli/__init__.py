"""The command line: text for people, one JSON document with `--json` for programs.

May import everything else; nothing imports it. Entry point: `main.main`. From top to bottom:

- `main` registers the commands.
- `commands`: one module per noun. A command parses its arguments, calls an `AgentClient` and prints.
- `session` opens the client, the settings and the local database.
- `output` prints tasks, tables and JSON, and follows a running task.
- `client` reaches an agent: by the local database, or over HTTP with `--server`.
- `invocation` (global options), `options` (shared arguments), `inputs` (`key=value` and JSON),
  `private_files`, `errors` (messages and exit codes).

To add a command: a function in a module of `commands`, a line in `main`, and the method that it needs
in `client.base.AgentClient` and both clients.

Modules import only typer at the top and the rest inside functions, so `agent --help` is fast and a
command loads only what it uses. An error becomes one message and an exit code, never a traceback.
"""
