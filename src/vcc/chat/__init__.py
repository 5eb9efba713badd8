"""Answers in sentences: a small language model reads the passages that the question-answering model finds."""
