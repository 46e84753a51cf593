------------------------------ MODULE LineAbs ------------------------------
(***************************************************************************)
(* A lock as its users may think of it: one queue. Its first tickets hold, *)
(* as many as fit the limit, each with a token above all before it. There  *)
(* are no messages, no clocks and no store. Modules Line, HandOver, Nodes  *)
(* and Owner each say which of their states is which queue, and that each  *)
(* of their steps is one of this module, or changes nothing here: their    *)
(* property Refines. What a program may rely on is what this module says.  *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Tickets,  \* attempts to hold the lock
  Writers,  \* those that take the whole limit; the others take one unit
  Limit,    \* units that fit
  Numbers   \* that a token may be, and 0

VARIABLES
  line,     \* tickets in order
  token,    \* of each ticket that holds; 0 of all others
  last,     \* the last token that was given
  uses,     \* of each ticket the token by which its client believes that it holds, or 0
  over      \* tickets that never come back

vars == <<line, token, last, uses, over>>

In(q) == {q[i] : i \in 1..Len(q)}
Units(S) == Cardinality(S \ Writers) + Limit * Cardinality(S \cap Writers)
Holds(q) == {q[i] : i \in {j \in 1..Len(q) : Units({q[k] : k \in 1..j}) <= Limit}}
Place(q, t) == CHOOSE i \in 1..Len(q) : q[i] = t

Init == line = <<>> /\ token = [t \in Tickets |-> 0] /\ last = 0
        /\ uses = token /\ over = {}

\* Grant: tickets that hold in q, and did not before, have tokens above the last, in order.
Becomes(q) ==
  LET new == {t \in Holds(q) : token[t] = 0} IN
  /\ line' = q /\ token' \in [Tickets -> Numbers]
  /\ \A t \in Tickets : IF t \in new THEN token'[t] > last
                        ELSE token'[t] = IF t \in Holds(q) THEN token[t] ELSE 0
  /\ \A t, u \in new : Place(q, t) < Place(q, u) => token'[t] < token'[u]
  /\ IF new = {} THEN last' = last ELSE \E t \in new : last' = token'[t] /\ \A u \in new : token'[u] <= last'

Enter(t) == t \notin In(line) /\ t \notin over /\ Becomes(Append(line, t))
Leave(S) == S # {} /\ S \subseteq In(line) /\ Becomes(SelectSeq(line, LAMBDA t : t \notin S))
Replace(t, u) == t \notin In(line) /\ t \notin over /\ u \in In(line)
                 /\ Becomes(Append(SelectSeq(line, LAMBDA v : v # u), t))
Stay == UNCHANGED <<line, token, last>>

\* Clients learn and forget in any step; they believe only what is so.
Honest == /\ uses' \in [Tickets -> Numbers] /\ \A t \in Tickets : uses'[t] \in {0, token'[t]}
          /\ over' \in SUBSET Tickets /\ over \subseteq over' /\ over' \cap In(line') = {}
Next == /\ \/ \E t \in Tickets : Enter(t) \/ \E u \in Tickets : Replace(t, u)
           \/ \E S \in SUBSET In(line) : Leave(S)
           \/ Stay
        /\ Honest
Spec == Init /\ [][Next]_vars

Users == {t \in Tickets : uses[t] > 0}
Exclusion == Units(Users) <= Limit
InOrder == \A i, j \in 1..Len(line) : i < j /\ token[line[j]] > 0 => 0 < token[line[i]] /\ token[line[i]] < token[line[j]]
OneOwner == \A t \in Users : uses[t] = token[t]
=============================================================================
