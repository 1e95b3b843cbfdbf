"""A day's budget has time as well, and the intent of a call of a model says what it may take."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    # Only added, on SQLite too: this table is as large as all that was ever asked and answered.
    op.add_column("tool_calls", sa.Column("reserved_ms", sa.BigInteger, nullable=True))
    for name in ("ms_used", "ms_reserved"):
        with _days() as table:
            table.add_column(sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
        with _days() as table:
            table.alter_column(name, existing_type=sa.BigInteger, server_default=None)


def _days() -> Any:
    # Made anew on SQLite, where a column that is only added stands behind the table's key.
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    return op.batch_alter_table("daily_spend", recreate="always" if is_sqlite else "never")
