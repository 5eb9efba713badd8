"""One command, one file: a typed function."""
