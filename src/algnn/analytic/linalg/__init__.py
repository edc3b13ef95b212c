"""Dense linear algebra: factorisations, the paper's recursion as a reference, subspaces."""
