"""Questions on tokens: reading, asking, and the second look."""
