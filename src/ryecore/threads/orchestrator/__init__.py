"""How threads look after the threads below them."""
