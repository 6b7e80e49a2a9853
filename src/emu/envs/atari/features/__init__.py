"""Frozen pre-trained features: weights without PyTorch, networks in JAX, frames to vectors."""
