"""Ids of traces: the same in every process, and joined to the caller's by the standard's header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.telemetry import trace_context
from agent.telemetry.trace_context import SpanContext, trace_of

HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_header_is_read_and_written() -> None:
    """As the standard's own example has it."""
    span = trace_context.parse(HEADER)
    assert span == SpanContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
    assert span.traceparent == HEADER
    not_sampled = trace_context.parse(HEADER.removesuffix("01") + "00")
    assert not_sampled is not None
    assert not not_sampled.is_sampled


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
    ],
)
def test_a_header_that_breaks_the_rules_is_ignored(header: str | None) -> None:
    """The task then gets a trace of its own."""
    assert trace_context.parse(header) is None
    assert trace_of("task", {"traceparent": header}).parent is None


def test_a_later_version_may_say_more() -> None:
    """The standard asks to read what is known of it."""
    header = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-brings"
    assert trace_context.parse(header) == trace_context.parse(HEADER)


def test_ids_depend_on_the_task_alone() -> None:
    """Every process computes the same ones, without anything stored."""
    assert trace_of("a", None) == trace_of("a", {"kind": "cli"})
    assert trace_of("a", None).root.trace_id != trace_of("b", None).root.trace_id
    root = trace_of("a", None).root
    assert root.child("step", 1) == root.child("step", 1) != root.child("step", 2)


def test_a_task_joins_the_trace_of_its_caller() -> None:
    """Its span is a child of the caller's, and the caller decides whether the trace is sampled."""
    trace = trace_of("a", {"kind": "api", "traceparent": HEADER.removesuffix("01") + "00"}, 1.0)
    assert trace.parent is not None
    assert trace.root.trace_id == trace.parent.trace_id
    assert trace.root.span_id != trace.parent.span_id
    assert not trace.root.is_sampled


@given(st.lists(st.uuids().map(str), min_size=1, max_size=20))
def test_the_ratio_bounds_what_is_sampled(task_ids: list[str]) -> None:
    """None, all, and a task that is sampled at a ratio is sampled at every higher one."""
    for task_id in task_ids:
        assert not trace_of(task_id, None, 0.0).root.is_sampled
        assert trace_of(task_id, None, 1.0).root.is_sampled
        if trace_of(task_id, None, 0.3).root.is_sampled:
            assert trace_of(task_id, None, 0.6).root.is_sampled
