"""The long-running process behind `agent up` and `agent worker`, and the worker inside a command.

`daemon` starts the worker with the server, the channels and the periodic jobs beside it, and stops
them in order. `jobs` has those periodic jobs, `startup_retry` what a start waits out, `event_logging`
the committed events that go to the log. `workflow_sync` keeps the stored workflows equal to the
files in their directory, and `workflow_overview` lists them for people. `embedded_worker` runs tasks inside a command, where no daemon does;
`database_lock` lets only one of them run on a SQLite file.

It may import everything below the command line. Entry points: `daemon.serve`,
`embedded_worker.EmbeddedWorker`. A new periodic job is a function in `jobs` and a line in
`Daemon._start_jobs`.
"""
