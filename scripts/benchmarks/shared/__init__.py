"""What several benchmarks need. Imports none of them."""
