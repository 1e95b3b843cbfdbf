"""The routes, one module a noun; each names the scope that it needs."""
