"""Form fields made from JSON Schemas and declared inputs, and values read from them."""
