"""One conversation of an agent."""
