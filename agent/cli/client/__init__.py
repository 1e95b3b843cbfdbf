"""How commands reach an agent: `base` declares the client, `local` works on the database of this
machine, `remote` talks to the HTTP API of another (`transport` sends the requests).

Commands do not know which of the two they use.
"""
