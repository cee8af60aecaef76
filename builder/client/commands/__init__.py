"""The commands of the client, one module each; an answer is made here and printed by ``cli``."""
