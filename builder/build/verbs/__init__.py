"""The verbs' work: flags in, exit codes out. ``tasks.py`` declares them."""
