"""The schema: `tables` declares it, `migrations` reach it, `migrate` upgrades a database and refuses to
run on another version.
"""
