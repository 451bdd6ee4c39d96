"""Settings: `declared` once, read by their `kinds` from three `sources`, handed to the `processes` by `views`.

Import from the modules and not from here: relays and the observer read their part without pydantic and YAML.
"""
