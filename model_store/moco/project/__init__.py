"""Images that are views of the same: MoCo."""
