"""What can be set: defaults, settings, where they came from, and where the daemon's files lie."""
