"""A double of the internet: the hosts of a build, below their own names, without any of the real ones.

A folder holds what each host serves, by host and path (``sites``). On the machine itself clients reach these
hosts through a proxy with an authority of its own. ``python -m tests.doubles.internet`` runs inside a network
namespace in front of a dockerd: there the hosts have addresses, ports 80 and 443, a name server, and Debian's
``docker-registry`` as the engine's mirror.
"""
