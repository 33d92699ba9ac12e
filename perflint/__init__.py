"""Finds what makes PyTorch training and evaluation code slow, rewrites it, and proves the rewrite."""
