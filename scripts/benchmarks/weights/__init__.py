"""What a model's weights cost, with one worker and with many."""
