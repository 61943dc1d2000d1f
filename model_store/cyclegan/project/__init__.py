"""Images of one kind as images of another, without pairs to learn from: CycleGAN."""
