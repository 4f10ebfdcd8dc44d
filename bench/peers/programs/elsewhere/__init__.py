"""Programs of libraries that the environment of aflow does not have, so no type checker reads them."""
