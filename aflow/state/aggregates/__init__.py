"""Aggregates that nobody has to write himself, one idea a file; users reach them as ``aflow.aggregates``."""
