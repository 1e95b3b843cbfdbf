"""The token by which a repeated snapshot is recognized."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, which workers of revision 0010 neither read nor write, and an index."""
    op.add_column("context_snapshots", sa.Column("client_token", sa.Text, nullable=True))
    has_token = sa.text("client_token IS NOT NULL")
    op.create_index(
        "context_snapshots_by_client_token",
        "context_snapshots",
        ["task_id", "client_token"],
        sqlite_where=has_token,
        postgresql_where=has_token,
    )
