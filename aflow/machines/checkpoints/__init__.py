"""The checkpoint coordinator: triggers checkpoints and completes or aborts them. Read ``coordinator`` first.

Not in here: barriers in tasks (``machines/barriers``), restarts (``machines/restart``), storage and the event loop
(``runtime/checkpoints``).
"""
