"""The measurements, each run as a process of its own by `bench.process.measure`."""
