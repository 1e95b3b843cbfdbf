"""The values of an attempt: its input and journal (`attempt_input`), its outcome (`outcome`), its calls
before and after they are recorded (`call_types`, `call_records`), the exceptions of a step's code
(`errors`), and the size of values (`value_sizes`). They import nothing else of `agent.steps`.
"""
