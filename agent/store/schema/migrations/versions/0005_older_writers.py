"""Workers of versions before 0003 can go on adding days: time has a default."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give the columns that 0003 added a default."""
    # SQLite cannot alter a column: the table is copied, which holds one row a day.
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    with op.batch_alter_table("daily_spend", recreate="always" if is_sqlite else "never") as table:
        for name in ("ms_used", "ms_reserved"):
            table.alter_column(name, existing_type=sa.BigInteger, server_default="0")
