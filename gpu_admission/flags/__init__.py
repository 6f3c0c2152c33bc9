"""The command line, as Go's flags are read."""
