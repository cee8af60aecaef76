"""The only room that composes others: one variant, several at once, and the verbs' work."""
