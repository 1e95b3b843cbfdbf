"""The loop of the `agent` kind: a model that asks for tools, and the tools that it may use.

Every turn of the model and every use of a tool is one journaled call, appended and never rewritten:
a later attempt goes through the same loop and is answered from the record, up to where the earlier
one stood. So nothing here may depend on anything but the definition and what is on record. What the
step may do is fixed by its definition, in which nothing under `tools` is ever rendered: no text from
outside can widen it.
"""
