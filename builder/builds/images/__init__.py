"""This package makes runtime images: the wheels inside, the trees of files, and the image itself."""
