"""The doctor: two metrics pages of a server in, what its users must be feeling out. Pure; see `commands.doctor`."""
