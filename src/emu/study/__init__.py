"""Looking at finished runs: curves, and (later) studies, statistics, reports."""
