"""All pages of the dashboard. A new module of pages is listed here."""

from typing import Final

from agent.server.pages import sign_in
from agent.server.pages.framework import files, live
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.inbox import inbox
from agent.server.pages.status import event_page, health_page, queue_page, spend_page
from agent.server.pages.tasks import (
    budget_action,
    bulk,
    fork_page,
    log_page,
    step_page,
    task_actions,
    task_list,
    task_page,
)
from agent.server.pages.triggers import trigger_pages
from agent.server.pages.workflows import workflow_pages

PAGES: Final[list[PageRegistry]] = [
    inbox.pages,
    task_list.pages,
    bulk.pages,
    task_page.pages,
    step_page.pages,
    log_page.pages,
    fork_page.pages,
    task_actions.pages,
    budget_action.pages,
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
