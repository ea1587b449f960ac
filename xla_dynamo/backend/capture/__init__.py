"""Dynamo's graph -> functional ATen graphs, and why Dynamo captured it again."""
