"""What passes cost on this machine, beside transformers and llama.cpp."""
