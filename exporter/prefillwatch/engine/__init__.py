"""What the serving engine says about itself: its own metrics page, its health, the memory of its GPUs."""
