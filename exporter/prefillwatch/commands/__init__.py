"""One module per group of commands, imported when it is called; those with an underscore are what several share."""
