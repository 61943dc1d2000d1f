"""What a request costs besides its model."""
