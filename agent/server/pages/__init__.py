"""HTML pages for people: the dashboard, and the page of a signed link. They load nothing from elsewhere.

One template per page, and no routes for fragments: the script (`assets/page.js`) fetches a page again
when the feed (`agent.server.streams.live_feed`) reports a change, and merges it into the shown page. Without
the script everything works by links and forms.

From top to bottom; imports point downwards:

- `page_set`: lists all pages.
- `workflows`, `triggers`, `status` (spend, health, events), `sign_in`.
- `tasks`: the list, one task, one step, forks, actions on many.
- `inbox`: everything that waits for a person, and the page of a signed link.
- `forms`: form fields from schemas, and values read from them.
- `framework`: code that all pages share. `drawings`: graphs, timelines and charts as SVG.
- `templates`, `assets`: the files.

To add a page: a template that extends `base.html`, a function under `@pages.page(...)` that returns
its data, an entry in `page_set`, and one in `framework.navigation` if it is not reached from another
page. A page changes something only in an action, with the functions that the API uses.

They import the server's context and the layers below it, and no route.
"""
