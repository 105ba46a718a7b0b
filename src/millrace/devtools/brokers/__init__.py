"""Real Kafka brokers on this machine, for development and tests: one or three, in KRaft mode, from Maven Central's jars. No Docker needed."""

from millrace.devtools.brokers.cluster import Cluster, revive, running, start, stop
from millrace.devtools.brokers.properties import Node

__all__ = ["Cluster", "Node", "revive", "running", "start", "stop"]
