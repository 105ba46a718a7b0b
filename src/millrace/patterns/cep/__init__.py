"""Finds patterns in the manner of Flink CEP."""
