"""Downloads from Debian's archive through apt's mirrors, and Debian root file systems."""
