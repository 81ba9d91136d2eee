"""What an agent can do: one file per tool."""
