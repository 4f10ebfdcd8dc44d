"""One program for each peer: the same jobs, written as a user of that library would write them.

A program runs in the environment of its peer, so it imports the standard library, its peer and ``protocol`` only.
"""
