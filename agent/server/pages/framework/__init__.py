"""The framework of all pages: how they are registered, rendered, shared between viewers and kept live.

- `page_registry`: pages and the actions of their forms, each with its scope and its CSRF check.
- `rendering`: responses, with CSRF tokens, notices, ETags and headers; `security_policy`: what browsers may load;
  `renderings` shares rendered pages between viewers with the same scopes.
- `sent_forms`: a form that is sent twice acts once.
- `page_request`: a request as the functions that read a page's data see it.
- `templates`, `assets`, `files`: Jinja2 with everything escaped; one style sheet, one script.
- `engine_texts`, `page_words`: messages of the engine with links and local times, in the words of a page.
- `navigation`, `notices`, `live`: the bar, messages after an action, the stream of changes.

It knows no page.
"""
