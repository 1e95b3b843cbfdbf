"""Example responses for the OpenAPI description, one module for each part of the API; `identities` has the ids and
instants that they share. A test checks them against `agent.server.schemas`. They import nothing else of `agent`.
"""
