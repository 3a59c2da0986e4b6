"""What was measured, and its views."""
