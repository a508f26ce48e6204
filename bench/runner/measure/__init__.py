"""The ways to measure: micro benchmarks, load generators, memory, several workers, and flame graphs."""
