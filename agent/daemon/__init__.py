"""The long-running process behind `agent up` and `agent worker`, and the worker inside a command.

`daemon` starts the worker with the server, the channels and the periodic jobs (`periodic`) beside it, and stops
them in order. `service_watch` tells systemd that the daemon is alive (protocol: `service_notifier`),
`task_spans` reports the traces of tasks.
`startup_retry` repeats a start after transient faults, `event_logging` logs committed events.
`workflow_sync` keeps the stored workflows equal to the files in their directory, and
`workflow_overview` lists them for people, with the remarks of `step_remarks`. `embedded_worker` runs tasks inside a command, where no daemon
does; `database_lock` lets only one of them run on a SQLite file.

`settings_reload` reads the configuration again on SIGHUP (`controlling_terminal` tells that from a
closed terminal) and for the HTTP API; each part has an `apply`. `channel_slot` holds the channels, which
a reload replaces. `instance_file` describes the running agent for commands: `status`, `reload`, `doctor`.

It may import everything below the command line. Entry points: `daemon.serve`,
`embedded_worker.EmbeddedWorker`. Only `periodic.job_scheduler` imports APScheduler, and only `daemon`
imports that: other commands must not pay for it.
"""
