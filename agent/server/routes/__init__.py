"""The routes, one module per resource; each route names the scope that it needs."""
