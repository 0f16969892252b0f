"""Logistic regression on census records over a network: data, model, runs, measures, figures."""
