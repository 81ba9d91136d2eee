"""The command line and the client behind it."""
