"""The functions of hello.yaml: plain Python, called with what `with` says."""

import time

WORDS = {"english": "Hello", "german": "Hallo", "french": "Bonjour", "spanish": "Hola"}


def greet(name: str, language: str) -> str:
    """Greet someone in one language, slowly enough for the parallel items to be seen."""
    time.sleep(1)
    return f"{WORDS.get(language, 'Hi')}, {name}!"


def sum_up(greetings: list[str], machine: str) -> dict[str, object]:
    """Put everything together."""
    time.sleep(0.5)
    return {"text": " ".join(greetings), "greetings": len(greetings), "machine": machine}
