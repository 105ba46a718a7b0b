"""The state folder of a run: checkpoints, savepoints, quarantine, and how state follows changed jobs."""
