"""Transcripts: YAML documents that say what goes in and what must come out, run on the model, the engine or Spark."""

from millrace.testing.transcripts.running import run_files

__all__ = ["run_files"]
