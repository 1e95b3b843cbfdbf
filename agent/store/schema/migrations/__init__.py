"""Alembic migrations: how a database reaches the schema that `tables` declares. `env` is what Alembic runs; `versions`
has the revisions. `agent.store.schema.migrate` calls them.
"""
