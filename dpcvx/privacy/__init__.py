"""What noise is, what it costs, and what was spent: mechanisms, accounting, ledgers."""
