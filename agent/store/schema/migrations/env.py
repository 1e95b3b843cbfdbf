"""Alembic's script: it migrates on the connection, and in the transaction, of the caller."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    # A half-made schema must not survive; SQLite's DDL is transactional as long as we begin.
    transactional_ddl=True,
    render_as_batch=connection.dialect.name == "sqlite",
)
context.run_migrations()
