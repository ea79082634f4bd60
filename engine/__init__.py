"""The target model, the verify loop, and the HTTP API around them."""
