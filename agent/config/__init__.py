"""The configuration: its keys, its defaults, its file, and who may change that file.

- `settings` joins the sections. Each key is a field with its bounds, its default and its comment, in the module of
  its section: `execution` (`engine`, `steps`, `http`, `shell`), `executors`, `channels`, `mail`, `models` (models and
  budgets), `operation` (backups, disk, traces), `secrets`; the rest in `settings`. To add a key, add a field there and
  write `config.toml` again with `default_file.default_text()`. A few defaults stand in `quick_settings.DEFAULTS`
  too, for commands that load no pydantic; a test compares them.
- `locations`: where the files of an agent are.
- `discovery` finds the file: named, upwards from the current directory, or the user's own.
- `loader.load` is the entry point: it merges defaults, the file, the environment and the command line.
  `problems` writes error messages, `keys` reads dotted keys, `toml_lines` finds the lines of keys.
- `effective` lists the values in force with their sources, `file_edit` sets one in the file, and
  `reloading` says which of them a running agent takes over.
- `file_exposure` refuses to start where untrusted users can change what the agent acts on.

It imports only `agent.core`.
"""
