"""Readers: from files to text."""
