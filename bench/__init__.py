"""Load benchmarks: aflow against a hand-written program that does the same work, in one process. See README.md."""
