"""P⁻¹ ≈ H⁻¹ for conjugate gradients: a low rank, a whole factor of an earlier θ, near neighbours."""
