"""The tools of an `agent` step, one module for each: `files`, `functions` (Python), `shell`, `http`, `mcp`, `workflows`,
`memory` and `engine`. Each makes `AgentTool`s from its keys (`make_tool`).

`mcp_sessions` holds the connections to MCP servers and `mcp_calls` makes one call, `url_allow_list` checks the
addresses of `http`, and `service_calls` reaches the database's services for `memory` and `engine`. A tool refuses arguments with `ToolRefusedError`; the model gets the reason.
`agent.steps.agent.toolbox` calls them; they import `agent.steps.http`, `process`, `attempt` and `types`.
"""
