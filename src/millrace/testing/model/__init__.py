"""The specification: the same semantics a row at a time, obviously right and slow."""
