"""The daemon of Spark's workers with the measurement of phases (`bench.phases`) installed."""

from bench import phases

if __name__ == "__main__":
    phases.install()
    from millrace.runners.spark import worker_daemon

    worker_daemon.serve()
