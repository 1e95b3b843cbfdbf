"""HTTP for steps and tools: the client and its address policy, one exchange with its redirects, the
bounded reading of bodies, and what a response means.
"""
