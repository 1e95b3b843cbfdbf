"""The services behind the tools `memory` and `engine` of agents: memories, and commands on tasks.

Steps do not touch the database. `agent.steps.attempt.services` declares what a tool may call; the classes
here implement it, and `agent.bootstrap` gives them to the worker. Their functions block: a tool calls
them in a thread, the server in its pools, the command line directly.

- `memories.Memories`: remember, recall, forget, for agents and for people; `tool_memory` is that for one tool.
- `engine_control.EngineControl`: what an agent may see and do of tasks, workflows and triggers. It has
  no function that answers an approval, sends a signal, resolves a call or raises a budget.
- `tool_errors`: errors of commands and queries, as failures that a model is shown.

It may import triggers and everything below.
"""
