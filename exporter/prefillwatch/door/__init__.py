"""The front door of the admin listener: takes connections, answers what must always be answered, passes on the rest."""
