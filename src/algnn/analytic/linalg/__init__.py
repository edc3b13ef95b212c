"""Dense linear algebra: factorisations and subspaces."""
