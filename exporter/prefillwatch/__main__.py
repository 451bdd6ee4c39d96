"""``python -m prefillwatch``."""

from prefillwatch.cli import main

main(prog_name="prefillwatch")
