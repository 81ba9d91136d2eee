"""What the daemon does."""
