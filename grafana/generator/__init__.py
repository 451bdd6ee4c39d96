"""Writes the Grafana dashboards of this folder: `python -m grafana.generator`."""

import warnings

with warnings.catch_warnings():
    # The SDK would rather have us write the newer form; the classic one is read by every Grafana since 10.
    warnings.simplefilter("ignore", DeprecationWarning)
    import grafana_foundation_sdk.builders.bargauge
    import grafana_foundation_sdk.builders.dashboard  # noqa: F401 # both warn as they are imported
