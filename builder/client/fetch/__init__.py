"""What comes over the network: indexes, archives and wheels, resumed and verified."""
