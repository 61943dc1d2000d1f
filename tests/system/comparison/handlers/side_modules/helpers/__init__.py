"""A package beside the handler."""
