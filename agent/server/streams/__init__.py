"""Server-sent streams: events for programs (`event_stream`), changes for open pages (`live_feed`).

Each has one reader of the event log for all its streams.
"""
