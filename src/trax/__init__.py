"""Trax."""
