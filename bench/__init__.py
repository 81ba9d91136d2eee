"""Measurements of the daemon, one question a file; `python -P -m bench` is not the way in, `make bench` is."""
