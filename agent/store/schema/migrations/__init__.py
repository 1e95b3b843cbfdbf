"""Alembic migrations: how a database reaches the schema that `tables` declares."""
