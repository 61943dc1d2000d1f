"""One GPU that many call at once."""
