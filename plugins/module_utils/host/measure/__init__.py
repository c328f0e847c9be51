"""Measuring NCCL on this host: with the service's engine, user and GPUs, as a transaction that gives the GPUs back.

    staged -> [stopping -> waiting_gpus] -> measuring -> [starting -> loading -> verifying] -> measured | not_measured
                                                                                            | restored | rollback_failed

`measured`: there is a result. `not_measured`: there is none, and nothing had been stopped. `restored`: there is none,
and what had been stopped serves again. What was stopped is started again through its gates in any case: when the
probe hangs, when this process is killed, and when the power fails.
"""
