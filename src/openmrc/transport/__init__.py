"""The protocol itself: kernels that take rows, scalars and the time, and return decisions."""
