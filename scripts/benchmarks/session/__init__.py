"""What a session costs."""
