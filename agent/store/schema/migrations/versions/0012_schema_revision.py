"""The schema's revision in a table of its own: `alembic_version` has the oldest one whose workers may stay."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what workers of revision 0011 neither read nor write."""
    op.create_table("schema_revision", sa.Column("revision", sa.Text, primary_key=True))
