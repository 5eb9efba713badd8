"""Questions on tokens: settings saved with a model, reading, asking, and the second look. Files are not known here."""
