"""Workflows as tools of an agent: a child task that the step waits for, on the agent's budget."""

import json
from typing import Any

import pytest

from agent.tasks.operator import budget_pause
from agent.workflows.graph import Graph
from tests.support.agent_steps import MODELS, agent, uses
from tests.support.approvals import question, say
from tests.support.child_tasks import child_of, gated_child, register
from tests.support.engine import Engine, Start, graph, other, step


def doubling() -> Graph:
    """Return a workflow that doubles a number."""
    return graph(
        step("double", "echo", given={"value": "{{ inputs.n * 2 }}"}),
        name="child",
        description="Double a number.",
        inputs={"n": {"type": "integer", "description": "which one"}},
        output="{{ steps.double.output }}",
    )


def answers(engine: Engine, task_id: str) -> list[Any]:
    """Return the recorded responses of the loop's tools, in order."""
    rows = engine.rows(
        "SELECT response FROM tool_calls WHERE task_id = :id AND action LIKE 'tool%' AND number > 1"
        " ORDER BY number",
        id=task_id,
    )
    return [json.loads(response) for (response,) in rows]


def test_a_childs_output_is_the_tools_response(start: Start) -> None:
    """The step waits without a slot; the model sees wrong arguments and failures."""
    engine = start(models=MODELS, slots=1)
    register(engine, doubling())
    script = [uses("look", n=4), uses("look", n="four"), uses("look", n=5), "done"]
    done = engine.run(graph(agent(*script), name="parent"))
    assert (done["status"], done["output"]) == ("succeeded", {"it": "done"})
    first, refused, second = answers(engine, done["id"])
    assert (first, second) == ({"text": "8"}, {"text": "10"})
    assert "four" in refused["refused"]
    assert [engine.document(child)["input"] for child in done["children"]] == [{"n": 4}, {"n": 5}]


def test_a_failed_child_is_a_tool_response(start: Start) -> None:
    """The loop goes on with the failure."""
    engine = start(models=MODELS)
    register(engine, graph(step("c", "fail"), name="child"))
    done = engine.run(graph(agent(uses("look"), "well then"), name="parent"))
    assert done["output"] == {"it": "well then"}
    (response,) = answers(engine, done["id"])
    assert response["is_error"] and "it does not work" in response["text"]


def test_a_child_beyond_the_depth_limit_is_a_tool_response(start: Start) -> None:
    """The limit on the depth of tasks holds for tools too, and the loop goes on."""
    engine = start(models=MODELS, task_depth=1)
    register(engine, graph(agent(uses("look"), "well then", workflow="outer"), name="outer"))
    outermost = graph(agent(uses("look"), "so be it", workflow="outer"), name="outermost")
    done = engine.run(outermost)
    assert done["output"] == {"it": "so be it"}
    (response,) = answers(engine, done["children"][0])
    assert response["is_error"] and "nested 1 deep" in response["text"]


def test_a_missing_workflow_fails_the_step(start: Start) -> None:
    """The model is not called with a tool that does not exist."""
    engine = start(models=MODELS)
    done = engine.run(graph(agent("done", workflow="nowhere"), name="parent"))
    assert (done["status"], done["error"]["code"]) == ("failed", "no_such_workflow")


def test_a_loop_keeps_its_tools_across_workers_and_versions(start: Start) -> None:
    """A worker's stop and a new workflow version change neither the tool nor the number of uses."""
    engine = start(models=MODELS)
    gate = gated_child(engine)
    task_id = engine.submit(graph(agent(uses("look", n=1), "done"), name="parent"))
    child = child_of(engine, task_id)
    engine.wait_step(task_id, "it", "waiting")
    engine.stop()
    register(engine, graph(step("other"), name="child", inputs={"wide": {"type": "string"}}))
    gate.open()
    again = start(models=MODELS)
    assert again.wait(task_id, "succeeded")["children"] == [child]
    ((shown,),) = again.rows("SELECT response FROM tool_calls WHERE action = 'tools#1'")
    assert list(json.loads(shown)["look"][0]["schema"]["properties"]) == ["n"]
    assert len(answers(again, task_id)) == 1


def test_a_use_is_approved_before_its_child_exists(start: Start) -> None:
    """A workflow counts as an effect unless the tool says otherwise: a person is asked first."""
    engine = start(models=MODELS)
    register(engine, doubling())
    tool = {"approve": None}
    task_id = engine.submit(graph(agent(uses("look", n=4), "done", tool=tool), name="parent"))
    engine.wait_step(task_id, "it", "waiting")
    assert engine.document(task_id)["children"] == []
    say(engine, question(engine, task_id), "approve")
    assert len(engine.wait(task_id, "succeeded")["children"]) == 1


@pytest.mark.parametrize("holder", ["step", "task"])
def test_a_childs_usage_counts_in_the_budgets_above_it(start: Start, holder: str) -> None:
    """The budget of the waiting step and the budget of its task both limit the child."""
    engine = start(models=MODELS)
    asks = other("ask", "llm", config={"model": "echo", "prompt": "x" * 2000, "max_tokens": 500})
    register(engine, graph(asks, name="child"))
    budget = {"tokens": 1500}
    held = agent(uses("look"), "done")
    changes: dict[str, Any] = {"config": {**held.config, "max_tokens": 100}}
    if holder == "step":
        changes["budget"] = budget
    held = held.model_copy(update=changes)
    above = graph(held, name="parent", budget=budget if holder == "task" else None)
    task_id = engine.submit(above)
    reason = engine.wait(task_id, "paused")["pause_reason"]
    assert f"the budget of {holder}" in reason
    child = child_of(engine, task_id)
    engine.wait(child, "paused")
    named = "it" if holder == "step" else None
    budget_pause.raise_budget(engine.operator, task_id, step=named, tokens=100_000)
    assert engine.wait(task_id, "succeeded")["status"] == "succeeded"
    ((reserved, used),) = engine.rows(
        "SELECT tokens_reserved, tokens_used FROM budgets WHERE id = :id",
        id=f"{task_id}/0" if holder == "step" else task_id,
    )
    assert reserved == 0 and used > 500
