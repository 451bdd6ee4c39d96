"""The same measurement on one server started with several settings, and what each setting costs."""
