"""A pipeline that is killed again and again, and what is needed to see that nobody can tell from its output."""
