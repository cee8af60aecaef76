"""Three sentences and how alike they are. Source: Sentence Transformers' documentation, Quickstart."""

SENTENCES = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]

SIMILARITIES = ((1.0, 0.6660, 0.1046), (0.6660, 1.0, 0.1411), (0.1046, 0.1411, 1.0))
"""Similarities of each sentence to all, of the model all-MiniLM-L6-v2."""
