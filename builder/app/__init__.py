"""The composition root: wires adapters to stages and walks a variant down the road."""
