"""A web service that decides which payments of cards to approve, and loses none: see README.md."""
