"""HTML pages for people. They load nothing from elsewhere and run no script.

`answer_page` shows one question and takes its answer; `schema_form` makes form fields from a JSON
Schema.
"""
