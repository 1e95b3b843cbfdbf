"""Commands of people and programs on tasks: pause, resume, cancel, retry, fork, signal, resolve, budget.

`operator` runs each in a transaction of its own; `state_table` says which command is allowed in
which state. Entry point: `operator`.
"""
