"""The event log and the catalogue: the only writer of durable state."""
