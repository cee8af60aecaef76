"""What the client observes on a machine, and the findings that explain it."""
