"""Scenarios for gfootball: this folder is added to its own."""
