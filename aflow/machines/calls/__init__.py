"""Calls that are awaited, one for each record: what is in flight, in which order it leaves, and when a call may begin."""
