"""What keeps a channel from being opened or from hearing anybody is on record."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    # Made anew on SQLite, where a column that is only added stands behind the table's key.
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    with op.batch_alter_table(
        "channel_cursors", recreate="always" if is_sqlite else "never"
    ) as table:
        table.add_column(sa.Column("trouble", sa.Text, nullable=True))
