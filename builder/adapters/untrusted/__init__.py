"""Files that nobody vouches for: archives, container images, by path or URL. Only libraries are unpacked."""
