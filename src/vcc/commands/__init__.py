"""The commands: one typed function per file."""
