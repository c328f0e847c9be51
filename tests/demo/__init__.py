"""The main job on a machine without a GPU: `make demo`."""
