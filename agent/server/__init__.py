"""The daemon's HTTP API: for programs, for browsers that answer questions, and for webhooks.

`server_thread` runs it in a thread with its own event loop beside the worker, so that a large
response or a burst of requests never delays a commit. `application` puts the parts together.

A request passes `connections.header_limits`, `requests.request_guard` (host, origin, token, size) and
`requests.route_registry` (scope, content type), and then its route in `routes`, or its page in `pages`.
Reads and commands run in the threads of `db_pool`; new tasks go through `task_submitter` to the worker,
many in one commit, and under an `Idempotency-Key` once (`idempotency`). `access` knows tokens and sessions,
`streams` tells what happens, `monitoring` has the metrics. `context` has the parts of one server, `problems` the
documents of errors, `startup` the state of a daemon that starts, `token_shares` how much one
token may take. `schemas` are the documents of the API and `examples` their examples.

External workers: `work_calls` checks claims, `held_lease` has the requests under one lease, `work_values` the values
that they bring. `watcher_checks` polls a watcher once for a caller; `workflow_files` finds broken files for pages.

Access is denied by default: without a token only health, signed webhooks and signed answers are
served. A route without a scope cannot be registered. A 2xx response means that the change is
committed; 429 and 503 mean that nothing was changed.

To add a route: write a function in `routes/` under `@routes.route(...)` with its scope, put its
documents into the module of the same name in `schemas/`, add a row to `docs/api.md`, and list a new
module in `application.ROUTES`.

It may import everything below it: channels, approvals, tasks and what they stand on. Entry point:
`server_thread.Server`. Modules that do not need FastAPI do not import it, since commands and the
daemon load it only where a server runs.
"""
