"""Writes a picture of every page at 360 and 1280 pixels, in light and dark, to `build/screens`."""

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


main(sys.argv[1:])
