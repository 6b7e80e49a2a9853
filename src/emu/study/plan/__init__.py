"""Planned runs: the paper's experiments by name, sweeps on this machine or a cluster, and how long they may take."""
