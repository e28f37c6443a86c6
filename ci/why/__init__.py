"""Why a case is slower: what could have caused it, and which of that is the cause, shown by putting it back.

`suspects` lists what differs between base and head, and makes head with some of it put back; `search` decides what is
tried next and what follows; `explain` measures that against base in lock-step, and says what came out.
"""
