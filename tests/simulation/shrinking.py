"""Shrinking a scenario to what it needs to fail."""

import copy
from collections.abc import Callable, Iterator
from itertools import islice

from tests.simulation.scenario import Scenario

Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails, most_tries: int = 400) -> Scenario:
    """Return a smaller scenario that still fails, dropping one thing after another."""
    best = scenario
    tries = 0
    has_shrunk = True
    while has_shrunk:
        has_shrunk = False
        index = 0
        while (smaller := next(islice(_smaller(best), index, None), None)) is not None:
            if tries == most_tries:
                return best
            tries += 1
            if fails(smaller):
                # What was next is now at this index.
                best, has_shrunk = smaller, True
            else:
                index += 1
    return best


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario without one thing, or with less of one; the largest cuts come first."""
    for name in ("faults", "operations", "trigger_operations"):
        if len(getattr(scenario, name)) > 1:
            smaller = copy.deepcopy(scenario)
            getattr(smaller, name).clear()
            yield smaller
    for index in range(len(scenario.submissions)):
        smaller = copy.deepcopy(scenario)
        del smaller.submissions[index]
        smaller.operations = [each for each in smaller.operations if each["task"] != index]
        for operation in smaller.operations:
            operation["task"] -= operation["task"] > index
        yield smaller
    yield from _without_graphs(scenario)
    yield from _without_steps(scenario)
    yield from _without_triggers(scenario)
    for name in ("faults", "operations", "trigger_operations"):
        for index in range(len(getattr(scenario, name))):
            smaller = copy.deepcopy(scenario)
            del getattr(smaller, name)[index]
            yield smaller
    for graph in range(len(scenario.graphs)):
        for option in ("max_parallel", "fail_fast", "timeout_seconds", "priority", "budget"):
            if option in scenario.graphs[graph]:
                smaller = copy.deepcopy(scenario)
                del smaller.graphs[graph][option]
                yield smaller
    for name in ("is_attended", "is_retried"):
        if getattr(scenario, name):
            smaller = copy.deepcopy(scenario)
            setattr(smaller, name, False)
            yield smaller


def _without_graphs(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario without a definition that nothing starts."""
    started = {each["graph"] for each in scenario.submissions}
    for graph in scenario.graphs:
        started |= {step["config"].get("name") for step in graph["steps"]}
    for index, graph in enumerate(scenario.graphs):
        if graph["name"] not in started and not any(graph.get("on", {}).values()):
            smaller = copy.deepcopy(scenario)
            del smaller.graphs[index]
            yield smaller


def _without_triggers(scenario: Scenario) -> Iterator[Scenario]:
    for graph, definition in enumerate(scenario.graphs):
        for kind, triggers in definition.get("on", {}).items():
            for index, trigger in enumerate(triggers):
                smaller = copy.deepcopy(scenario)
                del smaller.graphs[graph]["on"][kind][index]
                name = f"{definition['name']}:{trigger['id']}"
                smaller.trigger_operations = [
                    each for each in smaller.trigger_operations if each["trigger"] != name
                ]
                yield smaller


def _without_steps(scenario: Scenario) -> Iterator[Scenario]:
    for graph, definition in enumerate(scenario.graphs):
        if len(definition["steps"]) == 1:
            continue
        for index in range(len(definition["steps"])):
            smaller = copy.deepcopy(scenario)
            steps = smaller.graphs[graph]["steps"]
            name = steps.pop(index)["name"]
            for step in steps:
                if name in step.get("depends_on", ()):
                    step["depends_on"].remove(name)
                if not step.get("depends_on"):
                    step.pop("run_on", None)
                    step.pop("condition", None)
            yield smaller
