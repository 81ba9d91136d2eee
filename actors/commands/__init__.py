"""The commands service: what clients run outside of any agent."""
