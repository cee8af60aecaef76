"""Implementations of the ports with processes, sockets, the Docker engine and files."""
