"""One recipe = one typed function = one command."""
