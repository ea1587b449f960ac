"""`make matrix`: a fast set of tests in a fresh environment for each combination of versions."""
