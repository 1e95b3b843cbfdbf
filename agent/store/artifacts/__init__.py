"""Large values: their rows, named by hash (`artifact_rows`), and the stores outside the database (`blobs`,
called through `bounded_calls`). Entry points: `artifact_rows.put`, `take` and `load`. It imports
`store.db`.
"""
