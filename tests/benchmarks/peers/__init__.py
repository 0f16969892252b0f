"""The nearest peers on the same problems, side by side in one run; see docs/benchmarks/peers.md."""
