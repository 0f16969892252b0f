"""Local steps: projections, closed forms, conic and active-set solvers."""
