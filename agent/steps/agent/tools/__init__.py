"""The tools of an `agent` step, one module each: `files`, `functions` (Python), `shell`, `http`, `mcp`
and `workflows`. Each makes `AgentTool`s from its keys (`make_tool`). `mcp_sessions` holds the
connections to MCP servers, `url_allow_list` checks the addresses of `http`. A tool refuses arguments
with `ToolRefusedError`; the model gets the reason. `agent.steps.agent.toolbox` calls them; they import
`agent.steps.http`, `process`, `attempt` and `types`.
"""
