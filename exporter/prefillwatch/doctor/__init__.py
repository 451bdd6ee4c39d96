"""The doctor: two metrics pages of a server go in, a report of what its users feel comes out. Pure, except `watch`,
which fetches the pages."""
