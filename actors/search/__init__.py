"""The search service: files and directories by approximate name."""
