"""From the plan of a package to its compiled libraries."""
