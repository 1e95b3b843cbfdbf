"""The checks of `agent doctor`, which calls them one after the other (`agent.cli.commands.doctor`).

- `file_checks`: who can change or read the agent's files. `library_checks`: libraries that are missing.
- `database_checks`: whether it can be written, its tasks, its space. `backup_checks`: backups, and what a restore
  holds. `deep_check`: `--deep`, every promise of the engine over the whole database (`agent.tasks.checker`).
- `executor_checks`, `mail_checks`, `message_checks`: whether what workflows name can be reached.

A check yields a subject, its state, and a message with the remedy. They may import everything but
commands. Channels and triggers bring their own: `agent.channels.health_checks`, `agent.triggers.health_checks`.
"""
