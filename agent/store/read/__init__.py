"""SQL that only reads, for people and programs: lists and documents (`views`), the database's health for
`agent doctor` (`health`), and whole tasks for the checker (`audit_reads` reads them as `audit_rows`).
Entry points: `views` for
documents, `audit_reads.collect` for the checker. It imports `store.db` and `store.engine`.
"""
