"""Adapters to the outside: processes, git, servers, archives, Debian, Docker. ``wiring`` makes each once."""
