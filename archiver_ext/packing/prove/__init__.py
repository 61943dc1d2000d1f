"""Proves in a new process that an archive loads and answers its example inputs."""
