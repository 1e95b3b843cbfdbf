"""Retry and fork: a new task that keeps what succeeded in an earlier one.

- `retry_fork` makes the new task; `carry_over` decides which of its steps are kept and which run again.
- `inherited_calls`: recorded calls that steps which run again must not repeat. `kept_answers`: answers that the
  new task must not rely on, since the input has changed.
- `retried_children`: the child of a step that runs again is a retry of the earlier child.
- `--latest`: `version_fit` (which steps cannot be kept in another version), `changed_questions` (answered questions
  that differ there).

Delays between the attempts of one step are elsewhere: `agent.workflows.graph.RetryPolicy`. Entry points:
`retry_fork.retry` and `retry_fork.fork`. The imports are those of `agent.tasks.rules`.
"""
