"""How long until a model answers, and further workers."""
