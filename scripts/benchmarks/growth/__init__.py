"""How memory and latency grow with models, and with workers."""
