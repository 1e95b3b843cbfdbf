"""HTTP for steps and tools. Entry point: `exchange.Exchange.send`, one request with its redirects.

`client` holds the shared connections and `address_policy` checks each address that they connect to.
`redirects` decides what another origin gets, `body_reader` reads bodies up to a limit, and `response`
says what a response means. It imports `attempt.services` and `types`; httpx is imported at the first
request.
"""
