"""The framework of all routes and pages: how a request is checked, read, and answered.

`request_guard` refuses by host, origin, token and size before a route is chosen. `route_registry` registers
a function with its scope and its documents, which `openapi` describes. `request_args`, `paging` and
`responses` read arguments and write lists.
"""
