"""``python -m llm_enrichment``: run, replay, demo, tickets, fake-server."""

from llm_enrichment.commands import main

main(prog_name="python -m llm_enrichment")
