"""Helpers of tests that inject faults."""
