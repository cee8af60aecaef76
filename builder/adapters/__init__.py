"""The implementations of the ports: processes, sockets, the Docker engine, files."""
