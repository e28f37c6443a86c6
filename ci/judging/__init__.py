"""Comparisons and a policy in, a judgement out; measured now (`live`), or recorded (`recorded`)."""
