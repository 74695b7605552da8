"""Small pictures of single samples, drawn from values and the schema, as JSON values for a page."""
