"""The paper's method: a frozen encoder, a fixed expansion, and statistics solved in closed form."""
