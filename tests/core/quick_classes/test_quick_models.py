"""Models without pydantic: what they accept pydantic accepts, with the same result."""

import importlib
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union

import pydantic
import pytest

from agent.core.quick_classes import quick_models
from agent.core.quick_classes.quick_checks import NotPlainError, _with_bounds, accept, check_of
from agent.core.quick_classes.quick_fields import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    FieldSpec,
    ValidationInfo,
    field_validator,
    model_validator,
)
from agent.core.quick_classes.quick_models import BaseModel, ModelType, fields_of
from agent.workflows.compile.compiler import compile_text
from agent.workflows.diagnostics import WorkflowError
from tests.support.documented import ROOT, documented_workflows
from tests.support.effort import short_or_full

MODULES = (
    *(f"agent.workflows.compile.{name}" for name in ("models", "triggers", "watch_sources")),
    *(f"agent.workflows.compile.{name}" for name in ("executor_keys", "input_keys")),
    *(f"agent.steps.spec.{name}" for name in ("configs", "questions", "agent_config")),
    *(f"agent.steps.spec.{name}" for name in ("message_config", "worker_config", "mail_config")),
    *(f"agent.steps.spec.{name}" for name in ("attachment_config", "mail_addresses")),
    "agent.config.settings",
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, -1, 3.5, 0.0, 1e9, 2**60, float("inf"), "", " ", "a", "text", "two words",
    "a_name", "A-Name", "name\n", "naïve", "5", "true", "none", "30s", "1h30m", "0s", "-5m", "512MB", "get",
    "env:TOKEN", "file:/x", "keyring:a/b", "https://example.com/x", "m:f", "a.b:c", "{{ inputs.x }}", "x\0y",
    "\x1c", "ann@example.org", "Ann <ann@example.org>", "telegram:1", "origin", "2030-01-31T08:00:00Z",
    "2030-01-31T08:00", "Europe/Berlin", "0 8 * * 1", "@daily", "2xx", "200-299", 204, 404.0, "\ud800",
    [], ["a"], ["a", "a"], [1], [None], {}, {"a": "b"}, {"a": 1}, {"type": "string"}, {1: 2}, ("a",),
)  # fmt: skip


def models() -> list[ModelType]:
    """Return every model of the modules, also those that only others use."""
    found: dict[str, ModelType] = {}
    for name in MODULES:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, ModelType) and value is not BaseModel:
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return list(found.values())


class Generator:
    """Makes values that are mostly of the right type, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of(self, annotation: Any) -> Any:
        """Return a value for a type."""
        if self._random.random() < 0.04 or annotation is Any:
            return self._random.choice(VALUES)
        if isinstance(annotation, ModelType):
            return self.of_model(annotation)
        arguments: Any = getattr(annotation, "__args__", ())
        origin = getattr(annotation, "__origin__", None)
        if hasattr(annotation, "__metadata__"):
            own = [each for each in annotation.__metadata__ if isinstance(each, FieldSpec)]
            return self._bounded(origin, own[0]) if own else self.of(origin)
        if isinstance(annotation, UnionType) or origin is Union:
            return self.of(self._random.choice(arguments))
        if origin is Literal:
            return self._random.choice(arguments)
        if origin is list:
            return [self.of(arguments[0]) for _ in range(self._random.choice((0, 1, 1, 2)))]
        if origin is dict:
            return {
                self._random.choice(("a", "b_c", "X-D", "", "é", 7)): self.of(arguments[1])
                for _ in range(self._random.choice((0, 1, 2)))
            }
        fitting = [each for each in VALUES if type(each) is annotation]
        return self._random.choice(fitting or VALUES)

    def of_model(self, model: ModelType) -> Any:
        """Return the keys of a model: the required ones, and some others."""
        document = {
            spec.key(name): self._often_right(model, name)
            for name, (_, spec) in model.quick_fields.items()
            if self._random.random() < (0.97 if spec.is_required else 1.5 / len(model.quick_fields))
        }
        if self._random.random() < 0.03:
            document["unknown"] = 1
        return document

    def _often_right(self, model: ModelType, name: str) -> Any:
        """Return a value of a field; of several, the first that is accepted: most texts are not."""
        annotation, spec = model.quick_fields[name]
        check = _with_bounds(check_of(annotation), spec)
        value = self._bounded(annotation, spec)
        for _ in range(self._random.choice((0, 30, 30, 30))):
            try:
                check(value)
                break
            except Exception:
                value = self._bounded(annotation, spec)
        return value

    def _bounded(self, annotation: Any, spec: FieldSpec) -> Any:
        """Return a value that is often within the bounds: of numbers, the bounds are among them."""
        limits = [
            spec.arguments[name] for name in ("ge", "le", "gt", "lt") if name in spec.arguments
        ]
        if limits and self._random.random() < 0.8:
            return self._random.choice([*limits, limits[0] + 1, limits[-1] - 1])
        return self.of(annotation)


def plain(value: Any) -> Any:
    """Return models, quick or pydantic's, as plain values with their types and the fields that were given."""
    if isinstance(value, pydantic.BaseModel):
        return (type(value).__name__, plain(dict(value)), value.model_fields_set)
    if isinstance(type(value), ModelType):
        return (type(value).__name__, plain(fields_of(value)), value.model_fields_set)
    if isinstance(value, list | tuple):
        return [type(value), *map(plain, value)]
    if isinstance(value, dict):
        return [(plain(key), plain(member)) for key, member in value.items()]
    return (type(value), value)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_what_is_accepted_pydantic_accepts_with_the_same_result(model: ModelType) -> None:
    """Values of all sorts, most of them nearly right; dumps are the same too."""
    generator = Generator(7)
    accepted = 0
    for _ in range(short_or_full(150, 5000)):
        value = generator.of_model(model)
        try:
            quick = accept(model, value)
        except NotPlainError:
            continue
        accepted += 1
        checked: Any = model.pydantic.model_validate(value)
        assert plain(quick) == plain(checked), value
        for how in ({}, {"exclude_unset": True}, {"exclude_none": True}, {"by_alias": True}):
            assert plain(quick.model_dump(**how)) == plain(checked.model_dump(**how)), (how, value)
    assert accepted > 0


def workflow_texts() -> Iterator[str]:
    """Yield every workflow of the documentation and of the examples."""
    for page in ("workflows.md", "triggers.md", "messages.md", "state.md"):
        for documented in documented_workflows(page):
            yield documented.text
    for file in sorted((ROOT / "examples").glob("**/*.yaml")):
        yield file.read_text(encoding="utf-8")


def result_of(text: str) -> Any:
    """Return the compiled graph, or the problems, of a text."""
    try:
        return compile_text(text).text
    except WorkflowError as error:
        return error.problems


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Return a function that compiles a text as a process does that has not loaded pydantic."""

    def compile_quickly(text: str) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(quick_models, "_LIBRARY", "no such module")
            return result_of(text)

    return compile_quickly


def test_workflows_become_the_same_graphs(quickly: Callable[[str], Any]) -> None:
    """Every documented workflow and every example."""
    texts = list(workflow_texts())
    assert len(texts) > 50
    for text in texts:
        assert quickly(text) == result_of(text), text


def test_broken_workflows_have_the_same_problems(quickly: Callable[[str], Any]) -> None:
    """Lines are removed, repeated and changed."""
    chosen = random.Random(11)
    texts = list(workflow_texts())
    for _ in range(short_or_full(60, 5000)):
        lines = chosen.choice(texts).splitlines()
        at = chosen.randrange(len(lines))
        change = chosen.choice(("", lines[at] * 2, lines[at].replace(":", ": 7"), lines[at][1:]))
        text = "\n".join([*lines[:at], change, *lines[at + 1 :]])
        assert quickly(text) == result_of(text), text


def test_most_workflows_need_no_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is right is accepted quickly: otherwise nothing is gained."""

    def refuse(_: ModelType) -> Any:
        raise AssertionError("pydantic is used")

    monkeypatch.setattr(quick_models, "_LIBRARY", "no such module")
    monkeypatch.setattr(ModelType, "pydantic", property(refuse))
    texts = [text for text in workflow_texts() if isinstance(text, str)]
    slow = []
    for text in texts:
        try:
            compile_text(text)
        except AssertionError:
            slow.append(text)
        except WorkflowError:
            continue
    assert len(slow) <= len(texts) / 20, "\n".join(slow)


def test_the_shipped_configuration_needs_no_pydantic() -> None:
    """All its keys with their defaults are accepted quickly."""
    import tomllib

    from agent.config.settings import Settings

    text = (Path(ROOT) / "config.toml").read_text(encoding="utf-8")
    uncommented = "\n".join(
        line.removeprefix("# ") for line in text.splitlines() if " = " in line or line[:1] == "["
    )
    for each in (text, uncommented):
        try:
            document = tomllib.loads(each)
        except tomllib.TOMLDecodeError:
            continue
        accept(Settings, document)


def _doubled(value: object, info: ValidationInfo) -> object:
    assert info.context is None
    return value * 2 if isinstance(value, str) else value


def _short(value: str) -> str:
    if len(value) > 8:
        raise ValueError("is too long")
    return value


class Inner(BaseModel):
    """A part."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(pattern=r"^[a-z]+$", max_length=5)


class Outer(BaseModel):
    """A whole, with each sort of declaration."""

    model_config = ConfigDict(extra="forbid", strict=True)

    part: Inner | None = None
    text: Annotated[str, BeforeValidator(_doubled), AfterValidator(_short)] = "x"
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")
    number: float = Field(default=1.0, gt=0, lt=10)
    choices: list[int | str] = Field(default=["a"], min_length=1)
    flag: Literal[True] | None = None
    either: int | float | None = None
    size: float | None = None
    stripped: Annotated[str, AfterValidator(str.strip), Field(max_length=3)] = ""

    @field_validator("number")
    @classmethod
    def _is_no_seven(cls, number: float) -> float:
        if number == 7:
            raise ValueError("7 is taken")
        return number

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits(self) -> "Outer":
        if self.part is not None and self.text == "nn":
            raise ValueError("does not fit")
        return self


@pytest.mark.parametrize(
    "value",
    [
        {},
        "ab",
        {"text": "ab", "part": {"name": "abc"}},
        {"with": {"a": [1]}, "number": 3},
        {"choices": [1, "b"], "flag": True, "either": 1.5, "size": 2**50, "stripped": " a "},
    ],
    ids=json.dumps,
)
def test_plain_values_are_accepted(value: Any) -> None:
    """Exact types, whole numbers as floats, validators that accept them."""
    assert plain(accept(Outer, value)) == plain(Outer.pydantic.model_validate(value))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"part": {"name": "a\n"}},
        {"part": {"name": "é"}},
        {"part": {"name": "abcdef"}},
        {"part": {}},
        {"part": {"name": "a", "more": 1}},
        {"text": "abcde"},
        {"text": "n", "part": {"name": "a"}},
        {"text": "\ud800"},
        {"with_": {}},
        {"number": True},
        {"number": 10},
        {"number": "3"},
        {"number": 7},
        {"choices": []},
        {"choices": [True]},
        {"flag": 1},
        {"either": 3},
        {"size": 2**60 + 1},
        {"stripped": "  a  "},
        {"other": 1},
    ],
    ids=repr,
)
def test_all_else_is_left_to_pydantic(value: Any) -> None:
    """Nothing is refused here: pydantic decides, and words the error."""
    with pytest.raises(NotPlainError):
        accept(Outer, value)


def test_a_model_behaves_as_pydantics() -> None:
    """It is frozen, can be copied, compared and shown, and is an instance of the same class."""
    quick = accept(Outer, {"text": "ab", "part": {"name": "abc"}})
    assert quick == accept(Outer, {"text": "ab", "part": {"name": "abc"}})
    assert quick != accept(Outer, {})
    assert quick.model_copy(update={"text": "c"}).text == "c"
    assert quick.model_dump(include={"part"}) == {"part": {"name": "abc"}}
    assert quick.model_dump(exclude={"part"}, exclude_defaults=True) == {"text": "abab"}
    assert "abab" in repr(quick)
    with pytest.raises(AttributeError, match="frozen"):
        quick.text = "d"
    made: Any = Outer(text="ab")
    assert [isinstance(made, each) for each in (Outer, Outer.pydantic)] == [True, True]
    assert not isinstance(NoneType, Outer)


def test_a_model_may_stand_where_its_keys_may() -> None:
    """As a part of another one, and by itself."""
    part = accept(Inner, {"name": "abc"})
    assert accept(Inner, part) is part
    assert accept(Outer, {"part": part}).part is part


def test_a_mistake_makes_no_other_model_slow() -> None:
    """In a new process: pydantic's classes are made of the models that found something wrong."""
    program = (
        "from agent.steps.spec.configs import HttpConfig, ShellConfig, WaitConfig\n"
        "WaitConfig(duration='5s')\n"
        "try: ShellConfig(argv=[])\n"
        "except ValueError as error: print(type(error).__name__)\n"
        "HttpConfig(get='https://example.com')\n"
        "print([each._pydantic is not None for each in (WaitConfig, ShellConfig, HttpConfig)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["ValidationError", "[False, True, False]"]


def test_a_process_that_has_pydantic_uses_it_for_every_check() -> None:
    """Such as a daemon, which loads it for its configuration: its classes are faster."""
    program = (
        "from agent.config.settings import Settings\n"
        "Settings.pydantic.model_validate({})\n"
        "from agent.steps.spec.configs import WaitConfig\n"
        "print(type(WaitConfig(duration='5s')) is WaitConfig.pydantic)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_a_default_is_not_shared() -> None:
    """Each model has its own copy of a list."""
    first, second = accept(Outer, {}), accept(Outer, {})
    first.choices.append("b")
    assert second.choices == ["a"]
