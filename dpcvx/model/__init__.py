"""What users declare, compiled: agents, private data, layout, normal forms, curvature."""
