"""The ids and instants that example documents share."""

from typing import Final

TASK_ID: Final = "0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a10"
APPROVAL_ID: Final = "0199d2c4-8a02-7f10-8c4e-5b1d2e3f4a5b"
AT: Final = "2026-03-01T08:00:00.000Z"
LATER: Final = "2026-03-01T08:00:02.340Z"
