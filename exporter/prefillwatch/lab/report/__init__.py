"""Reports of the experiments: pages that need nothing but themselves, and tables for a terminal."""
