//! Canaries: plant, listen, read, remove; the network namespace they stand in.
