"""What is said: the messages between processes, towards clients, and in the log."""
