"""Connectors to model providers: one module each, behind one small protocol (`protocol.Connector`).

A connector sends a `ModelRequest` as one HTTP exchange and returns a `Reply`. It never retries (the
engine owns attempts) and stores nothing. Each of its failures is a `ModelError`, which says whether a
retry may help and whether the provider may have charged. Only the connectors import the SDKs, at the
first call of a model that needs them. There is no table of prices in the code: names, prices and limits of
models are `agent.config.models.ModelSettings`, from the configuration.

- Entry points: `registry.registry_of` makes the models from the configuration, `registry.connect`
  returns the connector of one. `agent.steps.kinds.llm.model_calls` calls them.
- `anthropic`, `openai`: the connectors; both use `sdk_call`, `response_parsing` and `schema_subset`.
  `echo`: a stand-in without a network.
- `errors`: the classes of failures. `pricing`: the cost of a call, and its upper bound.

To add a provider: its name in `agent.config.models`, a module with a connector, and entries in
`registry.connect` and, for a default key, `registry._KEYS`. This package imports `agent.config` and
`agent.core` only.
"""
