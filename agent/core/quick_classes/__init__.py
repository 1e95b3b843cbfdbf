"""Models and dataclasses that load fast: commands of the command line must not load pydantic or `dataclasses`.

- `quick_models`: the base class of configuration and workflow files, with pydantic's names. `quick_fields`: how
  fields are declared. `quick_checks`: which values are accepted without pydantic. `pydantic_classes`: pydantic's own
  classes, made of the same declarations, for every other value and for all error messages.
- `quick_dataclasses`: dataclasses, made without `dataclasses` and `inspect`.

docs/decisions/0029-pydantic-is-loaded-for-mistakes.md has the reasons.
"""
