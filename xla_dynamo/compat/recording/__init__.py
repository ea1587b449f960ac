"""Recording ops into the pending trace of a device: shapes, strides, seeds, counts."""
