"""Case studies: models of published problems, stated for cvxpy."""
