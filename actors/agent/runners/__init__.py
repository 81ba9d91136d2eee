"""What thinks: one file per kind of runner."""
