"""The `agent` kind: a model that pursues a goal with tools. Entry point: `loop.run`.

Each answer of the model and each use of a tool is one journaled call, appended and never rewritten.
A later attempt runs the same loop and gets its answers from the record up to where the earlier
attempt stopped. So the loop may depend only on the step's definition and on the record. Nothing under
`tools` is ever rendered: text from outside cannot widen the step's permissions.

- `loop`: the turns (its keys: `agent.steps.spec.agent_config`). `toolbox`: the tools of one attempt;
  `tool`: one tool and one use of it.
- `conversation`: the earlier entries, where the step continues a conversation.
- `use_tool`: one use, with its approval and its record. `tool_snapshot`: the descriptions of external
  tools, recorded before the first turn. `tool_content`: images and files in answers. `tool_questions`: what tools ask
  people. `tools`: the tools themselves, one module each.

To add a tool: its keys in `ToolConfig`, a module in `tools` with `make_tool`, and a line in
`toolbox._make_tools`. It may import every other package of `agent.steps`.
"""
