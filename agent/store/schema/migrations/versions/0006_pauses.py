"""Why a task is paused stands in columns: its kind, and the command that resumes it."""

import re

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_BUDGET = "budget: "
_COMMAND = re.compile(r"`agent (budget [^`]+)`")


def upgrade() -> None:
    """Add the columns, and fill them for tasks that are paused now."""
    # Only added, on SQLite too: a copy of this table would take as long as it has rows.
    for name in ("pause_kind", "pause_command"):
        op.add_column("tasks", sa.Column(name, sa.Text, nullable=True))
    connection = op.get_bind()
    paused = connection.execute(
        sa.text("SELECT id, pause_reason FROM tasks WHERE status = 'paused'")
    ).all()
    for task_id, reason in paused:
        is_budget = (reason or "").startswith(_BUDGET)
        command = _COMMAND.search(reason) if is_budget else None
        connection.execute(
            sa.text("UPDATE tasks SET pause_kind = :kind, pause_command = :command WHERE id = :id"),
            {
                "id": task_id,
                "kind": "budget" if is_budget else "operator",
                "command": command[1] if command else None,
            },
        )
