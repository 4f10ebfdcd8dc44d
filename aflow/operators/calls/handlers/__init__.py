"""Steps whose handlers are awaited and have state and timers for each key."""
