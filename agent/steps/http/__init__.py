"""HTTP for steps, tools and watchers. Entry points: `send` and `fetch` of `exchange.Exchange`, one
request with its redirects.

`client` holds the shared connections and `address_policy` checks each address that they connect to.
`exchange` decides whether a redirect is followed, `redirects` what another origin gets. `body_reader`
reads bodies up to a limit, and `response` classifies responses. `transport_errors` says why a remote was not
reached, `request_spans` traces requests. It imports `attempt.services`,
`types` and the store's JSON encoding; httpx is imported at the first request.
"""
