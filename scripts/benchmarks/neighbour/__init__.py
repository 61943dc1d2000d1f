"""What a quiet model feels of a greedy one."""
