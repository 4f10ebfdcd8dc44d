"""Benchmarks: aflow against a hand-written program that does the same work, in one process.

``harness`` compares two programs; read it first. Each other module is one benchmark with a function ``measure``;
``calls``, ``spark`` and ``crash`` (a test by random kills) are packages. README.md has the figures and budgets.
"""
