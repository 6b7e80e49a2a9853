"""Figures of finished runs: curves, comparisons over tasks, the memory's embedding."""
