"""Proposals for what users leave open: method, noise, steps, clips; no guarantee rests on them."""
