"""Connectors: each reaches one kind of source."""
