"""The rules, built from source.yml. Needs Python 3.10 and PyYAML, nothing of prefillwatch itself."""
