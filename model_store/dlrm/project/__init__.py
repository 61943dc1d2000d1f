"""A recommendation model: DLRM."""
