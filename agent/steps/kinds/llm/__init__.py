"""The `llm` kind (`llm`), and what every kind that asks a model uses: `model_calls` asks a model as a
journaled call with a reservation, `model_output` checks its answer. Only this package and
`agent.steps.agent` import `agent.models`.
"""
