"""What each framework runs: in an environment of its own, and from here nothing but the models."""
