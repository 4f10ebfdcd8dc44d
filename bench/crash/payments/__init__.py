"""Clients of a web service that is killed: what it has accepted is in its results exactly once.

The service is ``examples/fastapi_fraud``. ``proof`` runs rounds, read it first; ``server`` starts and kills the
service, ``clients`` send payments and record the answers, ``oracle`` compares these with what ``results`` reads.
``preforked`` is the program that is started.
"""
