"""Real Kafka brokers on this machine, for development and tests: one or three, in KRaft mode, without Docker.

Maven fetches their jars from Maven Central.
"""

from millrace.devtools.brokers.cluster import Cluster, load_cluster, restart, start, stop
from millrace.devtools.brokers.properties import BrokerNode

__all__ = ["BrokerNode", "Cluster", "load_cluster", "restart", "start", "stop"]
