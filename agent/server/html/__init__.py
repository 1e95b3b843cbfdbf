"""Pages for people, whole in themselves: they load nothing and run no script."""
