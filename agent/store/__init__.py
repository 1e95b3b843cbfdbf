"""The store: the schema, the SQL, and the two databases behind one small interface.

Purpose. Everything above speaks SQL written once, with `:name` parameters, through `Connection`:
`query` for rows, `execute` for a count, `transaction` around both. What differs between SQLite and
PostgreSQL is a word of `dialect.Sql` or is hidden in `sqlite` and `postgres`. Sets travel as one
JSON array of arrays (`Sql.rows`), so that a statement costs the same round trip for one row or for
hundreds.

Invariants.
- A writing transaction takes its lock at its start (`BEGIN IMMEDIATE`), never on the way.
- A commit that was acknowledged is on disk (`synchronous=FULL`, `synchronous_commit=on`).
- On SQLite every writer but the engine's turn holds the gate (`gate`) around its transaction; the
  turn passes through it before each of its own. So a busy daemon cannot starve the command line.
- The schema is what `tables` declares and `migrations` reach; nothing runs on another one
  (`schema.check`).
- Every stored value is plain JSON (`values`).

Failures surface as one exception, `StoreError`, with a `Fault` to act on and a message to read.
Only `Fault.DATA` is a row's own fault. A commit whose answer was lost is neither done nor undone:
it is `CommitUnknownError`, and the caller must look.
"""
