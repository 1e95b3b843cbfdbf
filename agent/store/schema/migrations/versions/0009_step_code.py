"""The code of a version's steps, when a step was first claimed, and tasks of a workflow in order."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, which workers of revision 0008 neither read nor write, and an index."""
    op.add_column("workflows", sa.Column("code", sa.Text, nullable=True))
    op.add_column("steps", sa.Column("first_claimed_at", sa.BigInteger, nullable=True))
    op.create_index("tasks_of_workflow_by_id", "tasks", ["workflow_name", "id"])
