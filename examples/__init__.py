"""Studies and demonstrations; `make examples` runs each in less than a minute."""
