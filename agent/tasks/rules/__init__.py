"""What changes in a locked task, and what follows from it. Functions take the transaction and the
`LockedTask`, change rows through `agent.tasks.state.transitions`, and never commit.

- `creation`, `claiming`, `settlement` (an attempt's outcome), `advance` (the one ending of every
  transaction: release steps, derive the status), `row_writer` (all rows, one statement per table).
- `fanout` (items of a group), `child_tasks` and `retried_children` (child tasks), `approvals`,
  `budgets`.
- `retry_fork` and `inherited_calls`: what a retry or a fork keeps.

They may import `state` and the store, and no other package of `agent.tasks`.
"""
