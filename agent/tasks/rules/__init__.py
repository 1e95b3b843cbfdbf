"""What changes in a locked task, and what follows from it. Functions take the transaction and the
`LockedTask`, change rows through `agent.tasks.state.transitions`, and never commit.

- Life of a task: `creation`, `claiming`, `settlement` (the outcome of an attempt), `advance` (ends
  every transaction on a task: releases steps, derives the status), `activity` (whether it only waits).
- `clock_correction`: waits that began while the clock ran ahead.
- Writing: `row_writer` (all rows, one statement per table), `call_ledger` (intents and results).
- Kinds of steps: `fanout` (items of a group), `child_tasks`, `approvals` (`decide` applies an answer),
  `conversations` (what steps append to them); `settlement.take_signal` wakes a step by a signal.
- Values: `state_writes` (`state`, which outlives tasks), `snapshots` (the context of one task).
- External workers: `external_work`. Triggers: `firings`. Retry and fork: `retries`. Each is a package.
- Budgets: `budgets` (limits and pauses), `budget_reservations` (reserves for calls, or refuses them),
  `locked_budget` (whether a reservation fits, and the message if not).

A transaction ends with `advance.advance` for each task and `row_writer.write` for all. Workers enter
through `agent.tasks.commit.transaction`, commands through `agent.tasks.operator`. They may import `state`,
the store and what is below it, and the types of `agent.steps`; no other package of `agent.tasks`.
"""
