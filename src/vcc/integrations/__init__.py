"""Doors: one file for each framework that VCC fits into, and for MCP. None is imported unless it is used."""
