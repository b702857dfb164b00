"""The simulated box: a separate process that speaks what the real adapters speak.

Docker Engine API on a Unix socket, vLLM-, SGLang- and llama.cpp-shaped engines on loopback, GPU readings as
lines, faults on command. It runs `scale` times faster than a real box; everything else is meant to be true.
"""
