"""Learn the Riemannian geometry of a dataset from samples, and use it."""
