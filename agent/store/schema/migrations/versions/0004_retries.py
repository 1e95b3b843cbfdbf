"""The task that retried another is found without looking through all of them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index."""
    is_retry = sa.text("retry_of IS NOT NULL")
    op.create_index(
        "tasks_by_retry", "tasks", ["retry_of"], sqlite_where=is_retry, postgresql_where=is_retry
    )
