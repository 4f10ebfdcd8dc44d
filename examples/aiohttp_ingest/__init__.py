"""A web service that accepts payments, adds them up for each card, and loses none: see README.md."""
