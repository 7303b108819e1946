"""Insight: what a strategy does, which one fits one's own data, and what a file holds."""
