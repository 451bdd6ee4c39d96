"""How settings are written by people: durations, sizes, addresses, and errors that name the source."""
