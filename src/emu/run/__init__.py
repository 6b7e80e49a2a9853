"""A run's folder: its files, checkpoints, metrics, provenance, and the trained team in it."""
