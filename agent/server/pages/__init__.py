"""HTML pages for people. They are complete in themselves: they load nothing and run no script.

`answer_page` shows one question and takes its answer; `schema_form` makes form fields from a JSON
Schema.
"""
