"""How the model that comes along was made: `prepare` the data, `train`, `score` what was found, measure the `speed`."""
