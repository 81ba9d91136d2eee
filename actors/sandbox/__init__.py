"""Sandboxes: what a command may touch, and how the system is made to hold it to that."""
