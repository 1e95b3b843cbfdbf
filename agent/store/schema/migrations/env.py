"""Alembic's script: it migrates on the connection, and in the transaction, of the caller.

Outside this transaction Alembic's table has the oldest revision whose workers may stay, because workers
from revision 0005 on compare themselves with it and end where it is newer. The revision of the schema
itself is in `schema_revision`.
"""

from alembic import context
from sqlalchemy import inspect, text

from agent.store.schema import migrate

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    # A half-made schema must not survive; SQLite's DDL is transactional as long as we begin.
    transactional_ddl=True,
    render_as_batch=connection.dialect.name == "sqlite",
)
if inspect(connection).has_table("schema_revision"):
    connection.execute(
        text("UPDATE alembic_version SET version_num = (SELECT revision FROM schema_revision)")
    )
context.run_migrations()
if inspect(connection).has_table("schema_revision"):
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
    connection.execute(text("DELETE FROM schema_revision"))
    connection.execute(text("INSERT INTO schema_revision VALUES (:it)"), {"it": revision})
    connection.execute(
        text("UPDATE alembic_version SET version_num = :oldest"),
        {"oldest": migrate.oldest_worker(revision)},
    )
