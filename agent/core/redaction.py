"""Keeping the values of secrets out of everything that is written down.

One `Redactor` serves the whole process: a step can print a secret that was given to another step, to
a channel or to a model, so each value that was read by reference is hidden from every output, error,
log line and event. `secret_forms` says in which forms a secret is found.

A text without secrets costs little: it is searched for the anchors of the forms, and only where one
occurs for the form itself.
"""

import json
from collections import deque
from collections.abc import Iterator
from threading import Lock
from typing import Any, Final

from agent.core.secret_forms import (
    ESCAPE_MARKS,
    MIN_LENGTH,
    NO_MARK,
    AnchoredForm,
    FoldedForm,
    Form,
    Gram,
    forms_of,
    grams_of,
)

REDACTED: Final = "[redacted]"
_VALUES_PER_NAME: Final = 4
"""The last values of one name that stay hidden: a step may still print a replaced one."""
_MANY_ANCHORS: Final = 400
"""With more anchors than this, searching a text for each costs more than collecting its grams."""


class Redactor:
    """Hides values in texts; any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: dict[str, deque[str]] = {}
        self._forms_of: dict[str, tuple[Form, ...]] = {}
        self._whole: frozenset[str] = frozenset()
        self._forms: tuple[Form, ...] = ()
        self._anchored: tuple[AnchoredForm, ...] = ()
        self._folded: dict[str, tuple[AnchoredForm, ...]] = {}
        """Of forms with hex digits, by a mark that is in every text which contains one."""
        self._has_many = False

    @property
    def longest(self) -> int:
        """The length of the longest form: text is cut nowhere inside one."""
        return max((form.longest for form in self._forms), default=0)

    @property
    def values(self) -> frozenset[str]:
        """The hidden texts."""
        with self._lock:
            return frozenset(value for values in self._values.values() for value in values)

    def hide(self, value: str, name: str | None = None) -> None:
        """Hide a value from now on; of one name, only the last few values are hidden."""
        if len(value.strip()) < MIN_LENGTH:
            return
        with self._lock:
            values = self._values.setdefault(name or value, deque(maxlen=_VALUES_PER_NAME))
            if value in values:
                return
            values.append(value)
            hidden = {value for values in self._values.values() for value in values}
            # Forms are reused: making those of a value takes longer than searching a text for them.
            cached = self._forms_of
            self._forms_of = {
                value: cached.get(value) or tuple(forms_of(value)) for value in hidden
            }
            # The longest first: one secret may be part of another.
            forms = [form for forms in self._forms_of.values() for form in forms]
            forms.sort(key=lambda form: form.longest, reverse=True)
            folded = [form for form in forms if isinstance(form, FoldedForm)]
            plain = [form for form in forms if not isinstance(form, FoldedForm)]
            self._anchored = tuple(pair for form in plain for pair in form.anchored)
            self._folded = {
                mark: tuple(pair for form in folded for pair in form.anchored_by(mark))
                for mark in (NO_MARK, *ESCAPE_MARKS)
            }
            self._has_many = len(self._anchored) + len(self._folded[NO_MARK]) > _MANY_ANCHORS
            self._forms = tuple(forms)
            self._whole = frozenset(value.strip() for value in hidden)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
            self._forms_of, self._whole = {}, frozenset()
            self._forms, self._anchored, self._folded = (), (), {}
            self._has_many = False

    def redact(self, text: str, mark: str = REDACTED) -> str:
        """Return a text without the hidden values."""
        grams = self._grams(text)
        # A replacement adds no anchor: what it leaves of the text is shorter.
        for form in self._present(self._anchored, text, grams):
            text = form.replace(text, mark)
        for form in self._folded_in(text, grams):
            text = form.replace(text, mark)
        return text

    def _grams(self, text: str) -> frozenset[Gram] | None:
        """Return all runs of three characters of a text, in lower case, if that saves searches."""
        if not self._has_many:
            return None
        return grams_of(text.lower())

    @staticmethod
    def _present(
        anchored: tuple[AnchoredForm, ...], text: str, grams: frozenset[Gram] | None
    ) -> Iterator[Form]:
        """Yield the forms whose anchor occurs in a text."""
        for gram, anchor, form in anchored:
            if (grams is None or gram is None or gram in grams) and anchor in text:
                yield form

    def _folded_in(self, text: str, grams: frozenset[Gram] | None) -> Iterator[Form]:
        """Yield the forms with hex digits whose anchor occurs in a text."""
        if not self._folded:
            return
        folded = text.lower()
        for mark, anchored in self._folded.items():
            if mark in text:
                yield from self._present(anchored, folded, grams)

    def redact_value(self, value: Any) -> Any:
        """Return a value without the hidden values, in its texts, its keys and as its numbers."""
        if not self._anchored or (not isinstance(value, str) and not self._may_hold_any(value)):
            return value
        return self._redacted(value)

    def _may_hold_any(self, value: Any) -> bool:
        """Search a value as one text: anchors are letters and digits, which JSON leaves alone."""
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError):
            return True
        if any(True for _ in self._present(self._anchored, text, self._grams(text))):
            return True
        # JSON doubles the backslashes of a text.
        text = text.replace("\\\\", "\\")
        return any(True for _ in self._folded_in(text, self._grams(text)))

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return self._redacted_object(value)
        if isinstance(value, list | tuple):
            return [self._redacted(member) for member in value]
        return REDACTED if self._is_hidden_number(value) else value

    def _redacted_object(self, value: dict[Any, Any]) -> dict[Any, Any]:
        """Redact keys and members; keys that become the same text are numbered, so that all stay."""
        result: dict[Any, Any] = {}
        numbers: dict[str, int] = {}
        for key, member in value.items():
            name = self.redact(key) if isinstance(key, str) else key
            unique = name
            while unique in result:
                numbers[name] = numbers.get(name, 1) + 1
                unique = f"{name} ({numbers[name]})"
            result[unique] = self._redacted(member)
        return result

    def _is_hidden_number(self, value: Any) -> bool:
        """Whether a value is a secret of digits, as which a text is read that is taken as JSON."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        try:
            return json.dumps(value) in self._whole
        except ValueError:
            # More digits than Python writes.
            return False


everywhere: Final = Redactor()
"""The secrets of this process."""
