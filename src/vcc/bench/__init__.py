"""Benchmarks of VCC and other long-document models."""
