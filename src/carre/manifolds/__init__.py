"""Oracles: manifolds with samples, tangent spaces and exact posteriors."""
