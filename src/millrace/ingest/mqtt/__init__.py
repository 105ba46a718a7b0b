"""Messages from an MQTT broker."""

from millrace.ingest.mqtt.connector import Mqtt

__all__ = ["Mqtt"]
