"""Pictures of every page: `make screens` writes them to `build/screens`."""
