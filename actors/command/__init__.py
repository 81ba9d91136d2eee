"""Command processes."""
