"""Measuring NCCL on a host: a probe that runs there, what to measure, and what follows from the results.

Everything here but the plot works with the standard library alone, on Python 3.9 or newer; `ship` sends it as one file.
"""
