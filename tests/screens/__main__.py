"""Writes a picture of every page at 360 and 1280 pixels, in light and dark, to `build/screens`.

`--docs` also copies those that the documentation shows to `docs/images`.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from agent.store.db.database import Database
from agent.store.schema.migrate import upgrade
from tests.screens.addresses import addresses
from tests.support.browser import DESKTOP, PHONE, running_browser, viewing
from tests.support.sample_dashboard import STEPS, fill
from tests.support.server import Running

TARGET = Path("build/screens")
DOCS = Path("docs/images")
IN_DOCS = {
    "question-phone": "question",
    "tasks-desktop": "tasks",
    "task-desktop": "task-failed",
    "schedule-desktop": "schedule",
}
"""The pages that the documentation shows, by the names of its pictures."""


def main(only: list[str]) -> None:
    """Fill a dashboard and take the pictures; with names, only those of these pages."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as home:
        database = Database(f"sqlite:///{home}/agent.db")
        upgrade(database)
        with Running(database, Path(home), STEPS) as running, running_browser() as browser:
            pages = addresses(fill(running))
            for width, size in (("phone", PHONE), ("desktop", DESKTOP)):
                for theme in ("light", "dark"):
                    is_dark = theme == "dark"
                    with viewing(
                        browser, running, size=size, dark=is_dark, has_refusals=True
                    ) as viewer:
                        for name, path in pages.items():
                            if only and name not in only:
                                continue
                            viewer.open(path)
                            target = TARGET / f"{name}-{width}-{theme}.png"
                            viewer.page.screenshot(path=target, full_page=True)
                            print(target)


def copy_to_docs() -> None:
    """Copy the pictures in light of the documented pages."""
    for name, page in IN_DOCS.items():
        width = name.rpartition("-")[2]
        shutil.copyfile(TARGET / f"{page}-{width}-light.png", DOCS / f"{name}.png")


arguments = sys.argv[1:]
main([name for name in arguments if name != "--docs"])
if "--docs" in arguments:
    copy_to_docs()
