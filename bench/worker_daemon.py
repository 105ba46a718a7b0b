"""The daemon of the Spark workers while they are measured: the usual one, with a stopwatch in it."""

from bench import phases

if __name__ == "__main__":
    phases.install()
    from millrace.runners.spark import worker_daemon

    worker_daemon.serve()
