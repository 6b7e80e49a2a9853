"""Atari games on pictures, for one agent, and the frozen features from which the memory makes its keys."""
