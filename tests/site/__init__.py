"""What ``make docs`` built, looked at."""
