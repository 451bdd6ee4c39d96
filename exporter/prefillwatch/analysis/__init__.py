"""From the reads of answers to verdicts: pure code, no sockets, no clocks, no metrics."""
