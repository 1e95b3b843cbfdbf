"""The periodic jobs of the daemon, each a plain function of the database and its clock.

- `job_scheduler` runs them at intervals or set times; only it imports APScheduler. `clock_jumps` notices that a
  clock was set or that the machine slept.
- `workflow_sync_job`: changed workflow files. The check of approvals is `agent.approvals.expiry`.
- `trigger_jobs`: schedules and watchers.
- `upkeep_jobs` adds the jobs for the agent's own files: `prune_job`, `backup_job`, `disk_watch`.

A new job is a module here and a line in `Daemon._start_jobs`. Entry point: `job_scheduler.JobScheduler`. The
imports are those of `agent.daemon`.
"""
