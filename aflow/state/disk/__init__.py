"""Keyed state larger than memory: the keys in use are in dicts, the others in a local database."""
