"""Many models in one pool."""
