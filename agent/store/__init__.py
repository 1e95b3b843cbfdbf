"""The store: the schema, all SQL, and the two databases behind one small interface.

Code above writes SQL nowhere: it calls functions of this package, which take the transaction
(`Connection`) first and never commit. SQL is written once, with `:name` parameters. What differs between
SQLite and PostgreSQL is a word of `db.dialect.Sql`, or is hidden in `db.sqlite` and `db.postgres`. A set
of rows is passed as one JSON array of arrays (`Sql.rows`): a statement takes one round trip for one row
or for hundreds.

Contents:
- `db`: `Database`, `Connection`, dialects, faults. `schema`: tables and migrations.
- `engine`: the reads and writes of workers and operators. The claim of steps is three statements: what is
  due (`engine.reads.due_tasks`, first asked in `engine.begin_tx.begin`), the lock of tasks
  (`engine.reads.lock_tasks`) and the update of claimed steps (`engine.writes.update_steps`).
- `read`: lists and documents for people, and rows for the checker. `event_log`: the log by cursor.
- `artifacts`: large values. `channels`: cursors, pairings, tokens. `memory_rows`: memories of agents.
  `idempotency_keys`: keys of requests.
- `backup`: copies of a database. `prune_run`: a prune that a person asks for. `pruning` and `firing_pruning`: the removal of old tasks and firings; `free_space`
  returns their space to the disk.

To add a table or a column: declare it in `schema/tables.py`, add a migration with the next number in
`schema/migrations/versions`, set `schema.migrate.HEAD`, and write its SQL in a module named after it.
A test compares the schema after all migrations with `tables`.

Invariants.
- A writing transaction takes its lock at its start (`BEGIN IMMEDIATE`), never later.
- An acknowledged commit is on disk (`synchronous=FULL`, `synchronous_commit=on`).
- On SQLite every writer except the worker holds the write lock around its transaction; the worker takes
  and releases it before each transaction. So a busy daemon cannot starve the command line.
- Nothing runs on a schema of another version (`schema.migrate.check`).
- Every stored value is plain JSON (`db.json_values`).

Failures are one exception, `StoreError`, with a `Fault` to act on and a message to read. Only
`Fault.DATA` is caused by the row itself. After `CommitUnknownError`, whose COMMIT may have happened, the
caller must read the database to find out.

It imports `agent.config` and `agent.core`.
"""
