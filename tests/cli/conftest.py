"""The fixture of the command line's tests."""

from tests.support.cli import cli  # noqa: F401  (a fixture by its name)
