"""All pages of the dashboard. A new module of pages is listed here."""

from typing import Final

from agent.server.pages import (
    bulk,
    event_page,
    files,
    fork_page,
    health_page,
    inbox,
    live,
    queue_page,
    sign_in,
    spend_page,
    step_page,
    task_actions,
    task_list,
    task_page,
    trigger_pages,
    workflow_pages,
)
from agent.server.pages.page_registry import PageRegistry

PAGES: Final[list[PageRegistry]] = [
    inbox.pages,
    task_list.pages,
    bulk.pages,
    task_page.pages,
    step_page.pages,
    fork_page.pages,
    task_actions.pages,
    workflow_pages.pages,
    trigger_pages.pages,
    spend_page.pages,
    health_page.pages,
    queue_page.pages,
    event_page.pages,
    live.pages,
    sign_in.pages,
    files.pages,
]
