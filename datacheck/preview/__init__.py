"""Small pictures of single samples: made of values and the schema, as JSON values that a page can draw."""
