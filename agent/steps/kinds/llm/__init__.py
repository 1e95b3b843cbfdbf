"""The `llm` kind (`llm`), and what every kind that asks a model uses: `model_calls` asks a model as a
journaled call with a reservation, `model_output` checks its answer. Entry points:
`llm.run`, `model_calls.ask`. It imports `attempt`, `spec`, `types` and `agent.models`.
"""
