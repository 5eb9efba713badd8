"""From files to tokens and back: examples, features, batches, answers, and text for pretraining."""
