"""The sources of watchers, one module each: a poll returns the items that a source shows, and a cursor.

`source` has the types that they share, `registry` finds a source by its key. A source knows nothing of
tasks and of the database. Libraries that one source needs are imported when it polls
(`source.require`): without one, the message names the package to install. `http_poll` is the request of
all sources on the web; `parser_process` parses what came in a process of its own. `path_scan`,
`path_snapshot`, `path_listener` and `directory_watch` (with `open_watch`), which all listeners share,
are parts of `path`.
`program` runs the programs of `command` and `git`, `poll_threads` runs what blocks, and `item_checks`
checks what the user's own programs and functions return.
"""
