"""Example responses for the OpenAPI description; a test checks them against the schemas."""
