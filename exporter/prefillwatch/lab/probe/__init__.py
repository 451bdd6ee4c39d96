"""The experiment with victims and a lump: steady streams, then long prompts at once, then recovery."""
