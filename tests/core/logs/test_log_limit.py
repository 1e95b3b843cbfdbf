"""Limited log lines: by source, with a count of those that were left out."""

from agent.core.logs.log_limit import LogLimit


def test_lines_are_limited_by_source() -> None:
    """One source's lines do not hide another's; the next window's first line counts the others."""
    now = 0.0
    limit = LogLimit(most=2, window_seconds=60.0, monotonic=lambda: now)
    assert [limit.admit("a") for _ in range(5)] == [0, 0, None, None, None]
    assert limit.admit("b") == 0
    now = 60.0
    assert [limit.admit("a") for _ in range(2)] == [3, 0]


def test_sources_without_end_use_no_memory_and_do_not_fill_the_log() -> None:
    """Of very many sources the oldest are forgotten, and all together get ten times the lines of one."""
    limit = LogLimit(most=2, window_seconds=60.0, monotonic=lambda: 0.0)
    admitted = [limit.admit(str(number)) for number in range(5000)]
    assert len(limit._windows) <= 1000
    assert admitted.count(0) == 20, "a client may have many addresses"
