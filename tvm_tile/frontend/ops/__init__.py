"""Computations that several formats have operators for, written once as Relax."""
