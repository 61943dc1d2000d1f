"""What packing costs."""
