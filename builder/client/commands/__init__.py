"""The commands of the client: an answer is made here and printed by ``cli``."""
