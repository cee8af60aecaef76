"""The end user's side: detect, select, install, env. Ships alone as ``ortpacks.pyz``."""
