"""HTML pages for people: the dashboard, and the page of a signed link. They load nothing from elsewhere.

One template per page, and no routes for fragments: the script (`assets/page.js`) fetches a page again
when the feed (`agent.server.live_feed`) tells of a change, and merges it into what is shown. Without
the script everything works by links and forms.

- `page_registry`: pages and actions are registered here, each with its scope; `page_set` lists them.
- `rendering`: responses, with CSRF tokens, notices, ETags and the content security policy.
  `renderings` shares what is rendered between viewers with the same scopes.
- `templates`, `assets`: Jinja2 with everything escaped, one style sheet, one script.
- `sign_in`, `inbox`, `task_list`, …: one module per page, with the actions of its forms.
- `answer_page`: the page of a signed link, without a session; `schema_form` makes form fields from a
  JSON Schema.

To add a page: a template that extends `base.html`, a function under `@pages.page(...)` that returns
its data, an entry in `page_set`, and one in `navigation` if it is not reached from another page. A
page changes something only in an action, with the functions that the API uses.

They import the server's context and what is below it, and no route.
"""
