"""Experiments: a simulated vLLM, load, probes and the demo."""
