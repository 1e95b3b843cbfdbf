"""What changes in a locked task, and what follows from it. Functions take the transaction and the
`LockedTask`, change rows through `agent.tasks.state.transitions`, and never commit.

- Life of a task: `creation`, `claiming`, `settlement` (the outcome of an attempt), `advance` (ends
  every transaction on a task: releases steps, derives the status).
- Writing: `row_writer` (all rows, one statement per table), `call_ledger` (intents and results).
- Kinds of steps: `fanout` (items of a group), `child_tasks`, `approvals`.
- Budgets: `budgets` (limits and pauses), `budget_reservations` (what calls reserve and use),
  `locked_budget` (whether a reservation fits).
- Retry and fork: `retry_fork` (the new task), `carry_over` (its steps), `kept_answers` (answers that
  it must not rely on), `inherited_calls` (calls that it must not repeat), `retried_children`.

A transaction ends with `advance.advance` for each task and `row_writer.write` for all. They may import
`state` and the store, and no other package of `agent.tasks`.
"""
