"""Inputs from the command line: `-i key=value` and whole JSON documents."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from agent.cli.errors import CommandError
from agent.core.key_values import parse_pairs


def parse_inputs(
    pairs: Sequence[str], document: str | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of a JSON document, and the texts of `-i`, which still have no type."""
    values: dict[str, Any] = {}
    if document is not None:
        value = parse_json(document, "--input-json")
        if not isinstance(value, dict):
            raise CommandError('--input-json: give an object, as in {"name": "value"}')
        values = value
    return values, typed_pairs(pairs, "-i")


def typed_pairs(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Return the values of an option that may be repeated, each `key=value`."""
    try:
        return parse_pairs(pairs)
    except ValueError as error:
        raise CommandError(f"{option} {error}") from None


def parse_json(text: str, where: str) -> Any:
    """Parse a JSON value; `-` reads it from standard input."""
    if text == "-":
        text = sys.stdin.read()
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{where}: this is not JSON: {error}") from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON value")


def _integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        # Python's own message advises to change a setting of the interpreter.
        raise ValueError(f"a number of {len(digits)} digits is too long") from None
