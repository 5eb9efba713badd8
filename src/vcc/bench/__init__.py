"""Our models and others, timed side by side."""
