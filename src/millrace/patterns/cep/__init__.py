"""Matches patterns of steps, with the semantics of Flink CEP."""
