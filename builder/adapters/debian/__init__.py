"""Debian: files of its archive, apt's mirrors, and root file systems."""
