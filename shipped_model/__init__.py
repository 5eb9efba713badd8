"""How the bundled model was made: `prepare` the data, `train`, `score` what was found, measure the `speed`."""
