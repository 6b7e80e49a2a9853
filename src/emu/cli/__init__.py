"""The `emu` command: thin; it parses, calls the package, and prints."""

from emu.cli.app import main

__all__ = ["main"]
