"""Passes on Dynamo's graph: calls of torch functions, before AOTAutograd traces through them."""
