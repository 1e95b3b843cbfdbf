"""The configuration: its keys, its defaults, its file, and who may change that file.

- `settings` declares every key with its bounds, its default and its comment; `channels` and `models`
  declare the sections of those names. To add a key, add a field there and write `config.toml` again
  with `default_file.default_text()`.
- `loader.load` is the entry point: it merges defaults, the file and the environment.
- `file_exposure` refuses to start where untrusted users can change what the agent acts on.

It imports only `agent.core`.
"""
