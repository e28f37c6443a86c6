"""Why a case is slower: what could have caused it, and which of that is the cause, shown by putting it back.

`suspects` lists what differs between base and head; `experiments` measures head with some of it put back, against base,
in lock-step; `search` decides what is tried next and what follows; `explain` does all of it for a judgement.
"""
