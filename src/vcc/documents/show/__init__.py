"""Answers and heat maps for people: terminal, pages, figures."""
