"""What every room may use; imports nothing of lit_gans."""
