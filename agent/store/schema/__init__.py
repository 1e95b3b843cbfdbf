"""The schema: `tables` and `channel_tables` declare it, `migrations` reach it, `migrate` upgrades a database
and refuses to run on another version.

To change it: edit the tables, add the next number under `migrations/versions`, set `migrate.HEAD`. A
revision only adds (see `migrate`), because workers of the version before may be running.
"""
