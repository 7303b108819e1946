"""Insight: what a vector file holds, whether it is right, and what in it is near to a text."""
