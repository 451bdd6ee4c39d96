"""From what the taps, upstream and the engine tell to facts: pure, without sockets, clocks, metrics or logs."""
