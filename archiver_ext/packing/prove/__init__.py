"""The archive is loaded in a fresh process, and its example inputs are answered."""
