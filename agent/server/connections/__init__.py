"""How connections reach the server: the address it listens on, and limits before a request is read.

`bind` finds the address and the port, `header_limits` bounds connections, headers and unread responses, and
`uvicorn_server` ends connections in time. It imports nothing else of the server.
"""
