"""Multiclass logistic regression over agents: data, splits, the model, runs and their figures."""
