"""The source `calendar`: an ICS file at an address, or a CalDAV collection.

`calendar` polls. `calendar_document` reads the events of a document, recurring ones too. `caldav_client` speaks
CalDAV, with `caldav_document` (its answers) and `caldav_names` (its XML names). Both documents come from strangers:
they are parsed in a process of their own (`agent.triggers.watchers.parser_process`). Entry point:
`calendar.open_source`. The imports are those of `agent.triggers.watchers`.
"""
