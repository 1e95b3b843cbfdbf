"""One attempt of one step, from its claim to its outcome.

- `runner`: runs the attempt and turns whatever happens into an outcome. Entry point: `runner.run`.
- `prepare`: renders the configuration. `approval_gate`: asks before a gated step acts.
- `context`: what a step's code sees. `calls`: the journaled calls: intent before effect, and
  recorded answers. `secrets`: secrets by reference and their redaction.
- `cancel_scope`, `thread_context`: time limits, and code that blocks.
- `services`: what the engine lends to attempts.
"""
