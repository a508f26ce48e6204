"""The benchmark runner, which runs the scenarios of bench/scenarios and prints their tables."""
