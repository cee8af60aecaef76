"""Which package fits a machine, with a reason for each that does not. Ships in ``ortpacks.pyz``."""
