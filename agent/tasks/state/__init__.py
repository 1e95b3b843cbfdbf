"""A task in memory while a transaction holds its lock. Imports nothing else of `agent.tasks`.

- `locked_task`: the entry point, a task with those of its steps that the transaction touches.
- `rows`: their rows, which know what changed; `transitions`: the only functions that write a status.
- `pauses`: why a task is paused; `isolation`: steps whose process died.
- `graph_cache`: compiled graphs by workflow and version.
"""
