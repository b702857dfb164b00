"""Tests on real parts: Docker Engine, llama.cpp, HAProxy, all from the package registries."""
