"""The tools an `agent` step may use: files, Python functions, shell, HTTP, MCP servers, workflows."""
