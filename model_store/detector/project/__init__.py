"""A detector: a small Faster R-CNN with region operators in C++."""
