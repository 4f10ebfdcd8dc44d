"""The queries of Nexmark, as a user of aflow writes them: each is a function of a source and a sink."""
