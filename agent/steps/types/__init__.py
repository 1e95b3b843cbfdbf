"""The values that attempts take and return: `attempt_input`, `outcome`, `call_types`, `errors`. They
import nothing else of `agent.steps`.
"""
