"""Finished runs: read, aggregated with honest statistics, tabulated and exported."""
