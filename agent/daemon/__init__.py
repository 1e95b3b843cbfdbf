"""The long-running process behind `agent up` and `agent worker`.

`daemon` starts the worker with the server, the channels and the approval loop beside it, and stops
them in order. `workflow_sync` keeps the workflows on record equal to the files in their directory.
It may import everything below the command line. Entry point: `daemon.run`.
"""
