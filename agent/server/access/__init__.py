"""Who may call, and with which scopes: tokens, sessions of browsers, one-time links, signed webhooks.

- `grants`: the permissions of tokens and sessions, in a file that holds only hashes.
- `tokens`, `sessions`, `one_time_links`: the three ways to a grant.
- `webhook_signatures`: webhooks have no token; a signature takes its place.
- `failed_auth_limiter`: an address that guesses is refused for a while.

It imports nothing else of the server.
"""
