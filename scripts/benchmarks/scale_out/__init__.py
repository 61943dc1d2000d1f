"""What a model on Ray Serve costs, by processes and by a pool."""
