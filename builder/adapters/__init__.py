"""The only impure code: processes, sockets, the Docker engine, files."""
