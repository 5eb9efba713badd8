"""The comparison at small scale: one small checkpoint, every method, the same tokens, the same steps."""
