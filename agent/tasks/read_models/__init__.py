"""Documents that every surface shows: tasks, steps, calls, workflows, budgets, and the event tail.

They read committed rows and change nothing. `task_documents` is the entry point for tasks and lists;
`person_waits` says what waits for a person; `outputs` computes a task's output. They may import
`rules`, `state`, `operator` and the store, and none of the packages that run tasks.
"""
