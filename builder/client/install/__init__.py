"""A package's way onto the machine.

``source`` reads the index and chooses the archive, ``obtain`` fetches it, ``unpack`` proves and unpacks it,
``complete`` adds NVIDIA's libraries, from this machine or from their wheels, ``current`` switches to it in
one step. ``installer`` walks this road; ``prefix`` is the folder that it leads to.
"""
