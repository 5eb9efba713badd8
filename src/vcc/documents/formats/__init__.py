"""Files into text."""
