"""Tests run on two CPU devices, so that every one of them also tests that work is shared out right."""

from emu.runtime import configure_cpu_devices

configure_cpu_devices(2)
