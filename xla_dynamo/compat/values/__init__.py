"""What a lazy tensor is: pending values, their ops, inputs and source locations."""
