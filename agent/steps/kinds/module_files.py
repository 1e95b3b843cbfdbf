"""Where the modules of `python` steps are: beside the workflow file, then among the installed ones.

Nothing is imported or run to find them.
"""

import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path


def module_exists(call: str, source_path: str) -> bool:
    """Whether a module exists, as far as that is known without running any of it."""
    name = call.partition(":")[0]
    first = name.partition(".")[0]
    try:
        if any(path.is_file() for path in source_files(name, source_path)):
            return True
        return first in sys.modules or find_spec(first) is not None
    except (ImportError, ValueError, OSError):
        return False


@lru_cache(maxsize=1024)
def source_files(name: str, source_path: str) -> tuple[Path, Path]:
    """Return the files where a module may be, beside a workflow; cached: every attempt needs them."""
    base = Path(source_path).parent.joinpath(*name.split("."))
    return base.with_name(base.name + ".py"), base / "__init__.py"


def file_of_module(module: str, source_path: str) -> Path | None:
    """Return the file of a module: beside the workflow, else installed."""
    for path in source_files(module, source_path):
        if path.is_file():
            return path
    first, *rest = module.split(".")
    try:
        # Only of the outermost package: a search inside it would import it.
        spec = find_spec(first)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin.endswith(".py") else None
    base = Path(spec.origin).parent.joinpath(*rest)
    candidates = (base.with_name(f"{base.name}.py"), base / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)
