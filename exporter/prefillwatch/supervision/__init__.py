"""What the supervisor is made of: child processes, their restarts, the sockets they inherit."""
