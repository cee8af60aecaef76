"""The steps of an install, from the index to the package in use.

``source`` reads the index and names the archive's place, ``layouts`` chooses the archive, ``obtain`` fetches
it, ``unpack`` verifies and unpacks it, ``complete`` adds NVIDIA's libraries, from this machine or from their
wheels, ``current`` switches to the package in one step. ``installer`` runs the steps; ``prefix`` has the
paths of the folder that packages are installed in.
"""
