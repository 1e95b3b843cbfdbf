"""Running one attempt of one step: the runner, the context a step sees, and the kinds of steps.

Nothing here touches the database. An attempt is given everything it may know (`claimed`), asks for
what must be durable through the `journal`, and ends in a value (`outcome`) that the engine applies.
An effect is never begun before its intent is durable, and never assumed to have worked.
"""
