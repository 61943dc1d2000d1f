"""What an interpreter costs, and a served model's workers."""
