"""Whether interpreters scale as processes do."""
