"""From what the taps, upstream and the engine report to facts: pure, without sockets, clocks, metrics or logs."""
