"""Large values. Entry points: `artifact_rows.put`, `take` and `load`.

`artifact_rows`: their rows, named by hash. `blobs`: the stores outside the database, called through `bounded_calls`.
`objects`: objects of a store by their address; `job_paths`: where those of jobs are. It imports `store.db`.
"""
