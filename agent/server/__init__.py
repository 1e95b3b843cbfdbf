"""The daemon's HTTP API: what people's programs, web pages and remote services talk to.

It runs in a thread of its own, with an event loop of its own, beside the worker: a large answer or
a burst of requests never holds up a turn. Reads use a few threads with a connection each; new tasks
ride the worker's turn, many in one commit; operators' commands are transactions of their own.

Nothing is let in by default. The door (`door.py`) refuses whatever comes without a token, before
any route is looked up, except health and signed webhooks; and a route that does not say which scope
it needs cannot be built (`table.py`). What is acknowledged is committed; what cannot be taken is
refused with 429 or 503 and leaves nothing behind.

Modules that do not need FastAPI do not import it: the command line and the daemon load it only
when a server runs.
"""
