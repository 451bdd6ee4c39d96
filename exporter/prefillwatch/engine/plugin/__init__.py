"""The plugin inside vLLM: step time and gaps between tokens by the prefill tokens that rode in the same step.

vLLM loads `entry` into its API server by the entry point group ``vllm.stat_logger_plugins``. What vLLM hands over after
each step goes into a bounded queue, and a thread of ours does the rest: two histograms on vLLM's own ``/metrics``, and
a report to a sidecar where ``PREFILLWATCH_SOCKET`` names one's socket. An error here must cost a figure, never a token.

Only vLLM's own dependencies are imported, since it may run where the rest of ours is not installed.
"""
