"""The values of an attempt. They import nothing else of `agent.steps`.

- `attempt_input`: its input, and the journal it records to. `outcome`: how it ended. `errors`: the exceptions of a
  step's code.
- `call_types`, `call_records`: its calls before and after they are recorded.
- `messages`, `attachment`, `conversation`, `snapshot`, `state_values`: the values that it sends, appends and writes.
- `value_sizes`: whether a value is small enough to process on the event loop. `clipping`: large values, cut for
  people.
"""
