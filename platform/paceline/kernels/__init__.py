"""Compiled inner loops of the CPU path, and the compiler that makes them on the machine where they run."""
