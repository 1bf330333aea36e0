"""What `make bench` measures. Times are printed and written down, never asserted: see `tests.benchmarks.__main__`."""
