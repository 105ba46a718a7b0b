"""The semantics on columns: plan, packets, progress, operators, state. It knows no Spark and no Kafka."""
