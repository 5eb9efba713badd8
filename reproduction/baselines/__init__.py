"""The models VCC is compared with, all started from the weights of the same checkpoint."""
