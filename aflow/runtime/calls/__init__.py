"""Calls on the event loop: the coroutines that make them, what they use, and who watches over them."""
