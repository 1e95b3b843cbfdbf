"""The schema: declared in tables, reached by `migrations`, applied by `migrate`, which refuses to run on another version.

`tables` declares those of tasks, and imports the others: `channel_tables`, `trigger_tables`, `state_tables` (state,
memories, conversations), `work_tables` (external workers).

To change it: edit the tables, add the next number under `migrations/versions`, set `migrate.HEAD`. A
revision only adds, because workers of the version before may be running; one that cannot is listed in
`migrate.BREAKING`, and waits until they are gone. A column of `tasks` or `steps` that the engine writes also goes
into `store/engine/writes.py` (its SQL type) and `agent/tasks/state/rows.py`.

Entry points: `migrate.upgrade`, `migrate.check`. It imports `store.db`.
"""
