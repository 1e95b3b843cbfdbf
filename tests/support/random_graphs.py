"""Graphs that hypothesis makes up."""

from hypothesis import strategies as st

from agent.workflows.graph import Fanout, Graph, RetryPolicy, Step


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Small graphs with every way to run, to fan out and to be limited."""
    steps = []
    for index in range(draw(st.integers(1, 7))):
        names = [f"s{number}" for number in range(index)]
        fanout = None
        if draw(st.integers(0, 3)) == 0:
            fanout = Fanout(count=1, concurrency=draw(st.none() | st.integers(1, 2)))
        steps.append(
            Step(
                name=f"s{index}",
                kind="python",
                depends_on=draw(st.lists(st.sampled_from(names), unique=True)) if names else [],
                run_on=draw(st.sampled_from(["success", "success", "failure", "always"])),
                fanout=fanout,
                retry=RetryPolicy(max_attempts=2, delay_seconds=0),
            )
        )
    return Graph(
        name="random",
        steps=steps,
        fail_fast=draw(st.booleans()),
        max_parallel=draw(st.none() | st.integers(1, 3)),
    )
