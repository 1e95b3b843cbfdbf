"""Large values of a worker that are stored outside the database, which may be slow or out of reach.

`external_values` holds both directions: `uploads` before the commit that refers to a value, `downloads` before an
attempt that needs one. `outages` records when the store cannot be reached. What is large is decided in
`agent.tasks.commit.large_values`; the calls to the store are in `agent.store.artifacts.bounded_calls`.

Entry point: `external_values.ExternalValues`. The imports are those of `agent.tasks.worker`.
"""
