"""Which libraries compute in private interpreters."""
