"""Messages from an MQTT broker."""

from millrace.ingest.connectors.mqtt.connector import Mqtt

__all__ = ["Mqtt"]
