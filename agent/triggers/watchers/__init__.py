"""The sources of watchers, one module or package for each: a poll returns the items that a source shows, and a cursor.

- All: `source` has the types that they share, `registry` finds a source by its key. `poll_threads` runs what
  blocks, `parser_process` parses what came from outside in a process of its own (its program: `parser_child`),
  `item_checks` checks what the user's own programs and functions return.
- `paths` (the key `path`), `calendars` (`calendar`) and `mailboxes` (`mail`) are packages.
- On the web: `url` (values: `page_document`), `feed` (`feed_document`), both with `http_poll`.
- `command` and `git` run programs (`program`); `python_function` calls a function of the user.

A source knows nothing of tasks and of the database. Libraries that one source needs are imported when it polls
(`source.require`): without one, the message names the package to install. Entry point: `registry`; they import
`agent.steps` and what is below, for HTTP, processes, mail and the user's functions.
"""
