"""One loader a source, all to one schema: `factkit.datasets.examples.Example`."""
