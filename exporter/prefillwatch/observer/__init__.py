"""The observer process: what the relays saw becomes facts, metrics and an API. It is never on the data path."""
