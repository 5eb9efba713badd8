"""Answers about a document: sentences quoted from it, or written by a local language model and checked against it."""
