"""Models of classical machine learning."""
