"""The source `path`: files that match a pattern.

`path` polls. `path_scan` lists files, `path_snapshot` compares two lists. `path_listener` polls early when the system
reports a change: all listeners share `directory_watch`, which has one `open_watch` for each directory. Entry points:
`path.open_source`, `path.open_listener`. The imports are those of `agent.triggers.watchers`.
"""
