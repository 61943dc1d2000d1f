"""What is done with each module and file: packaged, taken from the server, mocked."""
