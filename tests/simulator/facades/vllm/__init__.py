"""Engine simulator in the place of vLLM (test double)."""

from engine_simulator.launch import engine_version

__version__ = engine_version(__file__)
