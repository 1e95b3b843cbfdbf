"""The MCP server: tools and resources for clients of the Model Context Protocol, such as coding agents.

`http_endpoint` serves `/mcp` in the daemon; `stdio` serves the process of `agent mcp`. Both speak through
`protocol_server`, which lists the tools and resources and runs them.

A tool is a route of the HTTP API under another name (`tool_catalog`, `route_tools`): its input schema, its
output schema and its scope are the route's, and a call of it is a request to the route, in this process or
at an address (`api_calls`). So there is one implementation of permissions, checks, audit and effects. A
workflow with `on: mcp: true` is a tool of its own (`workflow_tools`), which starts a task.

A task may take long and may wait for people: `task_waits` waits for a bounded time, and asks the client's
user where the client can ask (elicitation) and the caller may answer. Otherwise the result says what the
task needs.

`questions` asks them as forms; `resources` are tasks and open questions as documents, and `change_watch` notifies
clients of changes. `local_routes` has the routes without a server, for `stdio`.

The package `mcp` (`sdk` finds it) is optional and slow to import: only `protocol_server` and what imports it load it, when
the first client comes. It may import the server and everything below.
"""
