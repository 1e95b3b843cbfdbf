"""The functions of diamond.yaml."""

from collections import Counter


def clean(text: str) -> str:
    """Keep letters and single spaces."""
    return " ".join("".join(c if c.isalpha() else " " for c in text.lower()).split())


def count_words(text: str) -> int:
    """Count the words."""
    return len(text.split())


def count_letters(text: str) -> dict[str, object]:
    """Count the letters, and find the most common one."""
    counts = Counter(text.replace(" ", ""))
    most_common = counts.most_common(1)[0][0] if counts else None
    return {"letters": counts.total(), "most_common": most_common}


def compare(words: int, letters: int) -> float:
    """Return how many letters a word has."""
    return round(letters / words, 2)
