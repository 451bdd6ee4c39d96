"""Shows the dashboards with real data and without a Grafana: `python -m grafana.render`."""
