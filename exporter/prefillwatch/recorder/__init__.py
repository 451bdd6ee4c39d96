"""What the observer saw, in a file, and a file played back through the observer."""
