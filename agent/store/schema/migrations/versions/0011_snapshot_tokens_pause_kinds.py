"""The token by which a repeated snapshot is recognized, and the kind of a trigger's pause."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns, which workers of revision 0010 neither read nor write, and an index."""
    op.add_column("context_snapshots", sa.Column("client_token", sa.Text, nullable=True))
    has_token = sa.text("client_token IS NOT NULL")
    op.create_index(
        "context_snapshots_by_client_token",
        "context_snapshots",
        ["task_id", "client_token"],
        sqlite_where=has_token,
        postgresql_where=has_token,
    )
    op.add_column("triggers", sa.Column("pause_kind", sa.Text, nullable=True))
    # Revision 0010 distinguished the pauses of a restore from others by their reason.
    op.execute(
        "UPDATE triggers SET pause_kind = 'restore' WHERE status = 'paused' AND pause_reason ="
        " 'the database was restored from a backup: what happened later is not known'"
    )
