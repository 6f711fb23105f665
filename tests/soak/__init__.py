"""Mixed load with faults on a real fleet; says what was lost, truncated, wrong or leaked.

Each request is one of some hundred distinct questions (`questions`), asked over one of the doors by a client that reads
to the end, reads slowly, goes away, has little time or asks for what cannot be (`jobs`, `malformed`). Meanwhile targets
and drafters are killed, halted and drained, links are slow and settings change (`faults`). Whatever happened, an answer
must be the one that the engine gives alone (`truth`, `verdict`), and in the end nothing may be held (`probe`, `watch`).
"""
