"""Files that we keep for others to read."""
