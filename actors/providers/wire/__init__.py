"""The wire formats of model providers, without I/O."""
