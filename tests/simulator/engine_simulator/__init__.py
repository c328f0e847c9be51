"""A TEST DOUBLE of SGLang and vLLM: no model, no GPU, no inference.

It imitates what a deploy tool can see of the real engines (processes, logs, shared memory, exit codes,
HTTP answers) so that the tool can be tested on a small machine. See tests/simulator/README.md.
"""
