"""Rendering: a valid service becomes bytes; the same input gives the same bytes on every controller."""
