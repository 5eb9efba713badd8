"""Questions on tokens: what is kept with a model, reading, asking, and the second look. Nothing here knows a file."""
