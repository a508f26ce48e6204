"""The benchmark runner, which runs the scenarios of bench/scenarios/*.toml and prints their tables."""
