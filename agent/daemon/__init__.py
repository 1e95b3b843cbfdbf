"""The long-running process behind `agent up` and `agent worker`, and the worker inside a command.

`daemon` starts the worker with the server, the channels and the periodic jobs beside it, and stops
them in order. `job_scheduler` runs the periodic jobs, at intervals or set instants, and `clock_jumps`
notices when a clock was set or the machine slept. `jobs` has the jobs (the check of approvals is
`agent.approvals.expiry`): plain functions of the database and its clock, which decide what is due.
`upkeep_jobs` adds the jobs that look after the agent's files: `prune_job`, `backup_job`, `disk_watch`.
`trigger_jobs` runs schedules and watchers. `service_watch` tells systemd that the daemon is alive (protocol:
`service_notifier`), `task_spans` reports the traces of tasks.
`startup_retry` repeats a start after transient faults, `event_logging` logs committed events.
`workflow_sync` keeps the stored workflows equal to the files in their directory, and
`workflow_overview` lists them for people, with the remarks of `step_remarks`. `embedded_worker` runs tasks inside a command, where no daemon
does; `database_lock` lets only one of them run on a SQLite file.

`settings_reload` reads the configuration again on SIGHUP (`controlling_terminal` tells that from a
closed terminal) and for the HTTP API; each part has an `apply`. `channel_slot` holds the channels, which
a reload replaces. `instance_file` describes the running agent for commands: `status`, `reload`, `doctor`.

It may import everything below the command line. Entry points: `daemon.serve`,
`embedded_worker.EmbeddedWorker`. A new periodic job is a function in `jobs` and a line in
`Daemon._start_jobs`. Only `job_scheduler` imports APScheduler, and only `daemon` imports that: other
commands must not pay for it.
"""
