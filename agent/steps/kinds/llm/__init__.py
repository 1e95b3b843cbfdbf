"""The `llm` kind: `llm` is the step, `model_calls` the journaled call of a model with its budget
reservation (also used by the `agent` kind), `model_output` the checks and repairs of an answer.
"""
