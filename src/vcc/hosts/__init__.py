"""Hugging Face models as hosts: the only folder that knows their internals."""
