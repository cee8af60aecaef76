"""The commands of the client. Each returns an answer, which ``cli`` prints."""
