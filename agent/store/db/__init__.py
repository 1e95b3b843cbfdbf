"""The two databases behind one interface.

`database` declares `Database` and `Connection`; `sqlite` and `postgres` implement them; `dialect`
holds the words in which their SQL differs, and maps their errors to a `Fault` (`sqlite_errors` those of SQLite).
`sqlite_driver` chooses the SQLite library. `pg_pipeline` sends
several statements in one round trip. `write_lock` keeps a busy daemon from starving other writers of
a SQLite file. `json_values` reads and writes JSON columns.

Entry point: `database.Database.connect`. It imports `agent.core` only, and no other part of the store.
"""
