"""The steps of all workloads: they do nothing, so that the engine is all that is measured."""


async def noop() -> int:
    """Return at once."""
    return 1


async def echo(value: object) -> object:
    """Return what it was given."""
    return value
