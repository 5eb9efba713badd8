"""The training engine, on the Hugging Face Trainer."""
