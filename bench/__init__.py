"""Benches: each compares servewright with its peers in one run, prints a table and writes a record.

    python -m bench.no_change       a deploy that changes nothing, on 1, 4 and 16 hosts
    python -m bench.restart         the time without an engine while the transaction restarts it
    python -m bench.command_line    how soon the command line answers
    python -m bench.drift           tokens of a real engine while drift is looked for

What they measured is in docs/measured/bench.md. Times depend on the machine and on what else it does; the ratios depend
on it far less, because the contestants run in turn.
"""
