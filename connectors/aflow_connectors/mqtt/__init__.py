"""MQTT 5: topics of a broker, read in a persistent session, and written with confirmations.

::

    from aflow_connectors.mqtt import MqttSink, MqttSource

    readings = flow.source(
        MqttSource("mqtt://localhost", "sensors/+/temperature", client_id="averages", of=Reading), name="readings"
    )
    alarms.to(MqttSink("mqtt://localhost", lambda alarm: f"alarms/{alarm.room}"), name="alarms")

Needs aiomqtt (the extra ``mqtt``). Read ``source.py`` first, then ``session_reader.py`` and ``deliveries.py``.
``client.py`` is the adapter to aiomqtt.
"""

from __future__ import annotations

from aflow_connectors.mqtt.sink import MqttSink
from aflow_connectors.mqtt.source import MqttSource

__all__ = ["MqttSink", "MqttSource"]
