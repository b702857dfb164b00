"""Stand-ins that let a Docker Engine without a GPU take GPU requests."""
