"""Fill the fields of a schema from a document: each value with the span it was read from."""
