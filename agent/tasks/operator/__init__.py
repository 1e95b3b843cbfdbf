"""Commands on tasks: pause, resume, cancel, retry, fork, signal, resolve, budget.

`operator.Operator` is the entry point: each command is one transaction under the task's lock.
`state_table` says which command is allowed in which state, `budget_pause` raises budgets, `step_names`
finds steps by name. It may import `rules`, `state` and the store.
"""
