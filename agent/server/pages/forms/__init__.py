"""Form fields made from JSON Schemas and declared inputs (`schema_form`), and values read from them (`form_values`).
They import `framework`, and know no page.
"""
