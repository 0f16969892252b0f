"""Elastic net over users as in Chan, Xie and Zhao, section 10: data, model, runs, losses."""
