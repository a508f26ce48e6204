"""The benchmark runner: scenarios are data (bench/scenarios/*.toml), this package runs them and prints the tables."""
