"""The command line: text for people, one JSON document with `--json` for programs.

May import everything else; nothing imports it. Entry point: `main.main`. From top to bottom:

- `main` runs the program; it prints the help and the version itself.
- `usual_arguments` reads the usual command line by the declarations in `parameters`; `program` reads every
  other one with typer. Both load only the command that is named.
- `completion` answers the completion of shells, `man_page` writes the man page from the commands, and
  `usage_examples` has the examples of the help.
- `commands`: one module per noun. A command parses its arguments, calls an `AgentClient` and prints.
- `session` opens the client, the settings and the local database; `other_agents` names the agents elsewhere.
- `output` prints tasks, tables and JSON, and follows a running task.
- `client` reaches an agent: by the local database, or over HTTP with `--server`.
- `registry` has every command as data; `front_page` is the help that is made of it.
- `example_files` and `schema_file`: the examples, and the schema of workflow files for editors.
- `plain_values` keeps typer from loading pydantic for arguments that are plain text; `help_lines` names the
  values of options and arguments in the help.
- `invocation` (global options), `options` (shared arguments), `inputs` (`key=value` and JSON),
  `private_files`, `errors` (messages and exit codes). `service`: the units that `agent service` installs.

To add a command: a function in a module of `commands`, a line in `registry`, and the method that it needs
in `client.base.AgentClient` and both clients.

Modules import `parameters` at the top and the rest inside functions, so a command loads only what it
uses. An error becomes one message and an exit code, never a traceback.
"""
