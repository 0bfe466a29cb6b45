"""Helpers of the conformance suite, split by noun. None of them imports the package under test at import time."""
