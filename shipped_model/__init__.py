"""How the bundled model was made: `prepare` the data, `train`, `score` the answers, measure the `speed`."""
