"""What is sent as it happens: events to programs (`event_stream`), news to open pages (`live_feed`).

Each has one reader of the event log for all its streams.
"""
