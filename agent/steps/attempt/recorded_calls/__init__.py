"""The calls of an attempt: each effect, and each answer of a model, is recorded before it starts and after it ends.

- `calls` numbers the calls and runs each through its phases. Entry point: `calls.Calls.open`.
- `replay`: which recorded call decides the next one. `unknown_policy`: `on_unknown`, for a call without a recorded
  result.
- `intents`: the row that is durable before the effect. `call_results`: the result after it.
- `call_functions`: adapts the functions that a step passes to its calls.

The rows are written in a commit, by `agent.tasks.rules.call_ledger`. The imports are those of `agent.steps.attempt`.
"""
