"""The files that ortpacks and its neighbours write: records to JSON and strictly back, names, logs, models.

Readers accept the two last versions of a format. Ships in ``ortpacks.pyz``.
"""
