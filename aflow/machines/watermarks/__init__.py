"""Watermarks: where they begin, and how those of several inputs are combined. Read ``generators`` first.

``multiplexer`` combines the splits of a source, ``valve`` the channels of a task, ``source_alignment`` stops sources
that are ahead of others. Not in here: the step that assigns timestamps (``operators/event_time``).
"""
