"""The routes, one module for each resource; each route names the scope that it needs.

Each module has a `RouteRegistry`; `agent.server.application.ROUTES` lists them. A route may import every
other part of `agent.server` but `application` and `server_thread`.
"""
