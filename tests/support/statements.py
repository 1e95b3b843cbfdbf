"""The statements that a connection executes."""

from typing import Any

from agent.store.db.database import Connection

Statements = dict[str, dict[str, Any]]


def record_statements(connection: Connection) -> Statements:
    """Note every statement that a connection is asked from now on."""
    asked: Statements = {}

    def noting(function: Any) -> Any:
        def noted(sql: str, /, **parameters: Any) -> Any:
            asked.setdefault(sql, parameters)
            return function(sql, **parameters)

        return noted

    def noting_each(function: Any) -> Any:
        def noted(statements: Any) -> Any:
            for sql, parameters in statements:
                asked.setdefault(sql, parameters)
            return function(statements)

        return noted

    for name in ("query", "execute", "defer"):
        setattr(connection, name, noting(getattr(connection, name)))
    connection.query_each = noting_each(connection.query_each)  # type: ignore[method-assign]
    return asked
