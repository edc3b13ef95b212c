"""How nodes become features: encoders, the random expansion, and the choice between them."""
