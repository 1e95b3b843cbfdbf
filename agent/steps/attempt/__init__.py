"""One attempt of one step, from its claim to its outcome. Entry point: `runner.run`.

In the order of an attempt:

- `runner`: runs the attempt. `attempt_limits`, `time_limit`: how many attempts, and how long.
- `prepare`: condition, items, rendered configuration (`config_record` records it). `approval_gate`: the approval
  before a step acts.
- `context`: the `ctx` of a step's code; `state_access` is its `ctx.state`. `thread_context`: the same for functions in
  threads. `captured_output`: the output of the code's `print` and `logging`.
- `recorded_calls`: effects and answers of models, recorded before they start and after they end; `on_unknown`.
- `outcome_rules`: the outcome, from the end of the kind's handler; outputs are checked and redacted here.
  `state_change`: the values that a success writes to `state`.
- `cancel_scope`: time limits and cancellation. `containment`: exceptions of the step's code.
- `secrets`: resolves secrets by reference, from `secret_sources` and `keyring_entries` (`agent.core.redaction` hides
  them in text). `services`: the parts that the attempts of a worker share. `spans`: traces.

It imports `spec` and `types`, and below them `agent.workflows`, `agent.models` (the registry),
`agent.config`, `agent.core` and the store's encoding of JSON values. It reaches a kind only through the
registry of kinds.
"""
