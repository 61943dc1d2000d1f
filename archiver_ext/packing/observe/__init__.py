"""What the model's code does while it is built and run: calls, files, imports."""
