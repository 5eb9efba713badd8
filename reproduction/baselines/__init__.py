"""The models that VCC is compared with, each started from the same checkpoint by copying its weights."""
