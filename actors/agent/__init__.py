"""One agent: its process, its turns, what thinks in it and the tools it has."""
