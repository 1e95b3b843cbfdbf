"""The tool `engine`: an agent sees and starts tasks, each once, within what its definition allows."""

import json
from typing import Any, get_args

import pytest

from agent.core.chat_origin import ChatOrigin, read_origin
from agent.steps.attempt.services import AgentStep
from agent.steps.spec.agent_config import EngineVerb
from agent.steps.types.errors import DefiniteFailure
from agent.tool_services.engine_control import MAX_STARTS_ABOVE, EngineControl
from agent.workflows.graph import Step
from tests.support.agent_steps import MODELS, uses
from tests.support.approvals import asks, everything, question, say
from tests.support.child_tasks import register
from tests.support.engine import NOW, Engine, Start, graph, step

NOTE = graph(
    step("write", "echo", given={"value": "{{ inputs.text }}"}),
    name="note",
    description="Write a note.",
    inputs={"text": {"type": "string"}},
)


def control(engine: Engine) -> EngineControl:
    """Give the worker of an engine the tool's service, and return it."""
    made = EngineControl(engine.database, engine.database.clock, 1000)
    engine.worker.services.engine = made
    return made


def agent(*script: Any, tool: dict[str, Any] | None = None, **keys: Any) -> Step:
    """Return an agent with the tool `engine` that follows a script."""
    config = {
        "goal": f"do it\n```echo\n{json.dumps(script)}\n```",
        "model": "echo",
        "tools": {"engine": {"engine": tool or {}, **keys}},
    }
    return Step(name="it", kind="agent", config=config, retry=NOW)


def answers(engine: Engine, task_id: str) -> list[Any]:
    """Return what the tools answered, in order."""
    rows = engine.rows(
        "SELECT response FROM tool_calls WHERE task_id = :id AND action LIKE 'tool%'"
        " ORDER BY number, attempt",
        id=task_id,
    )
    found = [json.loads(response) for (response,) in rows if response is not None]
    return [_value(answer) for answer in found]


def _value(answer: dict[str, Any]) -> Any:
    text = str(answer.get("text", answer.get("refused")))
    try:
        return json.loads(text)
    except ValueError:
        return text


def waiting_task(engine: Engine) -> str:
    """Return a task that waits for a person."""
    task_id = engine.submit(graph(asks("ask"), name="asks"))
    question(engine, task_id)
    return task_id


def test_an_agent_lists_and_shows_without_asking(start: Start) -> None:
    """Lists are short; a task that waits for a person says so, and not which question it is."""
    engine = start(models=MODELS)
    control(engine)
    register(engine, NOTE)
    waiting = waiting_task(engine)
    script = [
        uses("engine_list", what="tasks", status="waiting"),
        uses("engine_list", what="workflows"),
        uses("engine_list", what="schedules"),
        uses("engine_list", what="watchers"),
        uses("engine_show", task=waiting[-8:]),
        uses("engine_show", task="ffff"),
        "done",
    ]
    done = engine.run(graph(agent(*script), name="helper"))
    assert done["status"] == "succeeded", done
    tasks, workflows, schedules, watchers, shown, missing = answers(engine, done["id"])
    assert [each["task"] for each in tasks["tasks"]] == [waiting[-8:]]
    note = next(each for each in workflows["workflows"] if each["workflow"] == "note")
    assert note["inputs"]["properties"]["text"]["type"] == "string"
    assert (schedules, watchers) == ({"schedules": []}, {"watchers": []})
    assert shown["steps"] == [
        {"step": "ask", "kind": "approval", "status": "waiting", "waits_for": "a person's answer"}
    ]
    (asked,) = everything(engine, waiting)
    assert asked["id"] not in json.dumps([tasks, shown])
    assert "there is no task ffff" in missing
    engine.operator.cancel(waiting)


def test_a_start_asks_and_then_starts_a_task_of_its_own(start: Start) -> None:
    """By default a person approves; the task records who started it and is no child."""
    engine = start(models=MODELS)
    control(engine)
    register(engine, NOTE)
    script = [uses("engine_start", workflow="note", inputs={"text": "hello"}), "done"]
    task_id = engine.submit(graph(agent(*script), name="helper"))
    asked = question(engine, task_id)
    assert "engine_start" in asked["message"] and "hello" in asked["message"]
    say(engine, asked["id"], "approve")
    done = engine.wait(task_id, "succeeded")
    assert done["children"] == []
    (started,) = answers(engine, task_id)
    ((note_id, trigger),) = engine.rows(
        "SELECT id, trigger FROM tasks WHERE workflow_name = 'note'"
    )
    assert started["task"] == note_id[-8:]
    assert json.loads(trigger) == {"kind": "agent", "task": task_id, "step": "it", "depth": 1}
    assert engine.wait(note_id, "succeeded")["parent"] is None


def test_a_repeated_start_finds_its_task(start: Start) -> None:
    """Under one key there is one task, also when the workflow is gone meanwhile."""
    engine = start(models=MODELS)
    service = control(engine)
    register(engine, NOTE)
    script = [uses("engine_start", workflow="note", inputs={"text": "x"}), "done"]
    owner = engine.run(graph(agent(*script, approve="never"), name="helper"))["id"]
    (first,) = answers(engine, owner)
    ((key,),) = engine.rows("SELECT remote_key FROM tool_calls WHERE action LIKE 'tool%'")
    with engine.database.connect("writer") as connection:
        connection.execute("UPDATE workflows SET removed_at = 1 WHERE name = 'note'")
    assert service.start(None, "note", {"text": "x"}, AgentStep(owner, "it", key)) == first
    assert engine.rows("SELECT count(*) FROM tasks WHERE workflow_name = 'note'") == [(1,)]
    with pytest.raises(DefiniteFailure, match="no workflow 'note'"):
        service.start(None, "note", {"text": "x"}, AgentStep(owner, "it", "another"))


def test_a_started_task_inherits_the_origin_in_a_chat(start: Start) -> None:
    """What it has to say goes to the conversation in which the agent was asked."""
    engine = start(models=MODELS)
    control(engine)
    register(engine, NOTE)
    origin = ChatOrigin("telegram", "123")
    script = [uses("engine_start", workflow="note", inputs={"text": "x"}), "done"]
    engine.run(graph(agent(*script, approve="never"), name="helper"), chat_origin=origin.dump())
    ((stored,),) = engine.rows("SELECT chat_origin FROM tasks WHERE workflow_name = 'note'")
    assert read_origin(stored) == origin


def test_wrong_starts_are_answers(start: Start) -> None:
    """An unknown workflow, wrong inputs, one that is not allowed, and one more than allowed."""
    engine = start(models=MODELS)
    control(engine)
    register(engine, NOTE)
    script = [
        uses("engine_start", workflow="nothing"),
        uses("engine_start", workflow="note", inputs={"text": 5}),
        uses("engine_start", workflow="helper"),
        uses("engine_start", workflow="note", inputs={"text": "x"}),
        "done",
    ]
    tool = {"workflows": ["note", "nothing"], "max_starts": 3}
    done = engine.run(graph(agent(*script, tool=tool, approve="never"), name="helper"))
    unknown, wrong, forbidden, too_many = answers(engine, done["id"])
    assert "there is no workflow 'nothing'" in unknown
    assert "text" in wrong
    assert "not among the allowed ones: note, nothing" in forbidden
    assert "may start 3 tasks" in too_many
    assert engine.rows("SELECT count(*) FROM tasks WHERE workflow_name = 'note'") == [(0,)]


def test_agents_cannot_start_one_another_endlessly(start: Start) -> None:
    """An agent whose workflow starts itself ends after a bounded number of tasks."""
    engine = start(models=MODELS)
    control(engine)
    again = graph(
        agent(uses("engine_start", workflow="again"), "done", approve="never"), name="again"
    )
    register(engine, again)
    task_id = engine.submit(again)
    for _ in range(MAX_STARTS_ABOVE):
        engine.wait(task_id, "succeeded")
        (started,) = answers(engine, task_id)
        (task_id,) = (
            found
            for (found,) in engine.rows("SELECT id FROM tasks")
            if found.endswith(started["task"])
        )
    engine.wait(task_id, "succeeded")
    (refused,) = answers(engine, task_id)
    assert "started one another 5 times" in refused
    assert engine.rows("SELECT count(*) FROM tasks") == [(MAX_STARTS_ABOVE + 1,)]


def test_the_depth_counts_through_children_and_retries(engine: Engine) -> None:
    """A child or a retry of a task that an agent started is as deep as that task."""
    service = control(engine)
    register(engine, NOTE)
    deep = {"kind": "agent", "task": "t", "step": "s", "depth": MAX_STARTS_ABOVE}
    parent = engine.submit(graph(step("a", "fail"), name="deep"), trigger=deep)
    engine.wait(parent, "failed")
    retried = engine.operator.retry(parent).task_id
    child = engine.submit(
        graph(step("a"), name="child"), trigger={"parent": parent}, parent_task_id=parent
    )
    for task_id in (parent, retried, child):
        with pytest.raises(DefiniteFailure, match="cannot start another task"):
            service.start(None, "note", {"text": "x"}, AgentStep(task_id, "it", f"k-{task_id}"))


def test_pause_resume_and_cancel_are_applied_once(engine: Engine) -> None:
    """A repeated call changes nothing, also when a person has changed the task meanwhile."""
    service = control(engine)
    task_id = waiting_task(engine)
    name = task_id[-8:]
    first, second = (AgentStep("t-1", "it", key) for key in ("key-a", "key-b"))
    assert service.pause(None, name, "too early", first)["result"] == "paused"
    assert "too early (by the agent of step it" in engine.document(task_id)["pause_reason"]
    engine.operator.resume(task_id)
    assert "by the same call" in service.pause(None, name, "too early", first)["result"]
    assert engine.status(task_id) == "running"
    engine.operator.pause(task_id)
    assert service.resume(None, name, second)["result"] == "resumed"
    engine.operator.pause(task_id)
    assert "by the same call" in service.resume(None, name, second)["result"]
    assert engine.status(task_id) == "paused"
    assert service.cancel(None, name, None, AgentStep("t-1", "it", "key-c"))["result"] == "canceled"
    by = {"task": "t-1", "step": "it", "call": "key-c"}
    events = {kind: data for kind, _, _, data in engine.events(task_id)}
    assert events["task.canceled"]["by"] == by


def test_a_task_of_another_workflow_does_not_exist_for_a_restricted_tool(engine: Engine) -> None:
    """Neither to show nor to cancel; and no agent controls its own task."""
    service = control(engine)
    task_id = waiting_task(engine)
    by = AgentStep(task_id, "it", "k")
    with pytest.raises(DefiniteFailure, match="of the allowed workflows"):
        service.show_task(["note"], task_id)
    with pytest.raises(DefiniteFailure, match="of the allowed workflows"):
        service.cancel(["note"], task_id, None, by)
    assert service.list_tasks(["note"], None, None, 10) == {"tasks": []}
    with pytest.raises(DefiniteFailure, match="cannot control itself"):
        service.cancel(None, task_id, None, by)
    engine.operator.cancel(task_id)


def test_long_lists_are_cut(engine: Engine) -> None:
    """A list says that there is more; values of a task are cut."""
    service = control(engine)
    for _ in range(3):
        engine.run(graph(step("a", "echo", given={"value": "x" * 5000}), name="long"))
    listed = service.list_tasks(None, None, None, 2)
    assert len(listed["tasks"]) == 2 and listed["more"] == "only 2 are shown"
    shown = service.show_task(None, listed["tasks"][0]["task"])
    assert len(json.dumps(shown)) < 4000


def test_no_verb_decides_for_a_person() -> None:
    """The verbs of the tool and the functions behind it are these and no others."""
    verbs = {"list", "show", "start", "pause", "resume", "cancel"}
    assert set(get_args(EngineVerb)) == verbs
    functions = {name for name in vars(EngineControl) if not name.startswith("_")}
    lists = {"list_tasks", "list_workflows", "list_triggers", "show_task"}
    assert functions == lists | (verbs - {"list", "show"})
