"""Firings of triggers as part of a commit: the decision is made outside, the result is written here.

- `trigger_update`: the plan for one trigger (cursor, instants or items, the tasks to start), and its result.
- `firing` applies the plans of a commit: it locks triggers, compares versions and creates tasks.
- `trigger_firing`: one plan on one locked trigger; it decides the overlap and writes the firings.

Entry point: `firing.fire`. The imports are those of `agent.tasks.rules`.
"""
