"""Programs for padded sizes: what `passes.static.pad_sizes` is made of; rules/ by family of ops."""
