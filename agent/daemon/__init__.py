"""The long-running process behind `agent up` and `agent worker`, and the worker inside a command.

`daemon` starts the worker with the server, the channels and the periodic jobs beside it, and stops
them in order. `jobs` has the periodic jobs (the approval loop itself is `agent.approvals.expiry`).
`startup_retry` repeats a start after transient faults, `event_logging` logs committed events.
`workflow_sync` keeps the stored workflows equal to the files in their directory, and
`workflow_overview` lists them for people. `embedded_worker` runs tasks inside a command, where no daemon
does; `database_lock` lets only one of them run on a SQLite file.

It may import everything below the command line. Entry points: `daemon.serve`,
`embedded_worker.EmbeddedWorker`. A new periodic job is a function in `jobs` and a line in
`Daemon._start_jobs`.
"""
