"""Writers and readers of packages, wheels and the client's zip."""
