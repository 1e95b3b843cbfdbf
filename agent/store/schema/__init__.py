"""The schema: `tables` and `channel_tables` declare it, `migrations` reach it, `migrate` upgrades a database
and refuses to run on another version.

To change it: edit the tables, add the next number under `migrations/versions`, set `migrate.HEAD`. A
revision only adds (see `migrate`), because workers of the version before may be running. A column of
`tasks` or `steps` that the engine writes also goes into `store/engine/writes.py` (its SQL type) and
`agent/tasks/state/rows.py`.

Entry points: `migrate.upgrade`, `migrate.check`. It imports `store.db`.
"""
