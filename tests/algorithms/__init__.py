"""One file a method. A package, since some names are also those of other tests."""
