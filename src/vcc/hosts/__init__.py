"""Hugging Face models as hosts: the only folder that knows their internals."""

PREFIX = "vcc-"  # of the model types of wrapped models: "vcc-bert"
