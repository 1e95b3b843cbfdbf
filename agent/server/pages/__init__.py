"""HTML pages for people. They load nothing from elsewhere and run no script.

`answer_page.page` (the entry point) shows one question and takes its answer; `schema_form` makes form
fields from a JSON Schema. They import `agent.core` and FastAPI's responses, and no route.
"""
