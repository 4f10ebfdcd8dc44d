"""Calls that are awaited, one for each record: what is in flight, in which order it leaves, when a call may begin."""
