"""EMU: cooperative multi-agent reinforcement learning with episodic memory.

Importing `emu` stays light (no JAX): `emu.memory` is usable from any trainer.
"""

__version__ = "0.2.0"
