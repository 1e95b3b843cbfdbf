"""The documents that the API takes and returns, one module for each route module; `base` has their base classes.

Class names, fields, descriptions and examples are the schemas of the OpenAPI description. Responses
are written from the read models' documents without passing through these classes; a test checks
that the two agree. Routes name them in `@routes.route(returns=…)`. They import `agent.server.examples`.
"""
