"""The log on Apache Kafka: the same contract, for many machines."""
