"""The unit that costs are counted in."""

from typing import Final

MICROUSD: Final = 1_000_000
"""Millionths of a dollar in one."""
