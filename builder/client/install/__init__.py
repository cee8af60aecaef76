"""The steps of an install, from the index to the package in use.

``installer`` runs the steps and chooses the archive: ``source`` reads the index and names the archive's
place, ``obtain`` fetches it, ``unpack`` verifies and unpacks it, ``complete`` adds NVIDIA's libraries from
this machine or from their wheels, which ``pip`` fetches, ``current`` switches to the package in one step.
``signed`` verifies a release's signatures; ``prefix`` has the paths of the folder that packages are
installed in.
"""
