"""Environments: the protocol, the registry, the checker, and those that come with the package."""

from emu.envs.base import Drawable, Env, EnvSpec, make, register, registered

__all__ = ["Drawable", "Env", "EnvSpec", "make", "register", "registered"]

register("gridworld", "emu.envs.gridworld:GridWorld", "two agents must arrive together; arriving alone costs (EMC's example)")
