"""Files and descriptors, independent of their content.

- Locks: `process_lock` (one daemon for a SQLite file), `database_file` (a database is known by its file).
- Trust: `file_trust` (who can change a file), `confined_files` (nothing outside one directory), `private_files` (nothing of the agent's own),
  `environment_file` (`.env`).
- The system: `file_sync`, `file_descriptors` (their limit), `disk_space`, `user_cache` (results that commands keep
  between processes).
"""
