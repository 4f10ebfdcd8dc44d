"""Classify support tickets with a language model, within a budget, and pay for no ticket twice: see README.md."""
