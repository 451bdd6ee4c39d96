"""A torch profiler trace read as engine steps: which kernels ran, how the steps came, and what a prompt did to them."""
