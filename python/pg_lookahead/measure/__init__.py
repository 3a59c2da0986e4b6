"""Measuring two ways of doing the same thing side by side."""
