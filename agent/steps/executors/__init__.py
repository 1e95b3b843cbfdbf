"""Executors: where the code of `python` and `shell` steps runs. Entry point: `registry.Executors`.

The runner asks `Executors.open` for an `Execution` of one attempt, waits for its `ready`, and calls its
`run` in the place of the kind's own handler. `local` needs none of this: the runner calls the kind.

- `process`: a process of a warm pool (`process_pool`, `worker_process`) calls the function. `worker_main`
  is the program of such a process; its `ctx` (`worker_context`) sends every call over a socket, and
  `context_server` answers it with the attempt's own context, so an intent is durable before its effect.
  `messages` and `worker_link` are that connection, `worker_state` is `ctx.state`. `process.limits_of` chooses the
  limits of the process, `worker_main._limited` sets them.
- `job`: a command launches `agent job`, which runs the attempt from objects in a store and writes its
  status there. `remote` launches, watches (`job_watch`) and finds such a job again; `launcher` starts one
  (`command_launcher` by a command); `job_spec` is the input of the job, `job_objects` names the objects, and
  `job_runner` is `agent job`.
- `ray`, `dask`: the same objects; an actor or a task of the cluster is the job.

Invariants. The intent of a job is recorded before it is launched, and its row in the ledger names the
job's objects. The process that creates the write-once object `begun` decides: a job begins only if it created
it, and an agent that created it knows that the job can never begin. A job writes its output before its final
status. It is lost when its status does not change for the heartbeat's time on the agent's monotonic clock.
It imports `kinds` and what is below, and not the `agent` kind.
"""
