"""The methods, one a file, and the public program that they run on."""
