#!/usr/bin/python3
"""nvidia-smi of the engine simulator (test double): reports simulated GPUs."""
