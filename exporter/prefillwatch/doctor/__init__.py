"""The doctor: two metrics pages of a server in, what its users must feel out. Pure, except `watch`, which asks."""
