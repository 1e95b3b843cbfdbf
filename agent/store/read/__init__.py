"""SQL for people and programs: lists and documents (`views`), health, and the rows that the checker
compares (`audit_rows`).
"""
