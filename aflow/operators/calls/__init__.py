"""Steps that call an async function for each record."""
