"""Passes on the joint graph of forward and backward, before it is partitioned."""
