"""Writes the Grafana dashboards of this folder: `python -m grafana.generator`."""
