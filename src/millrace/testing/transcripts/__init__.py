"""Transcripts: YAML documents of events in and expected panes out, run on the model, the engine or Spark."""

from millrace.testing.transcripts.running import run_files

__all__ = ["run_files"]
