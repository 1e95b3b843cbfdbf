"""Connectors to model providers: one file each, behind one small protocol.

A connector turns a request in our words into one HTTP exchange and back. It never retries (the
engine owns attempts), never stores anything, and says of each failure whether it may be tried again
and whether the provider may have charged for it. The SDKs are imported here and nowhere else, at the
first call of a model that needs them. Model names, prices and limits stand in the configuration.
"""
