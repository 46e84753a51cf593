------------------------------- MODULE Places -------------------------------
(***************************************************************************)
(* Places of several tickets (Join 7). The tickets of a named owner share  *)
(* one place, with its units and its token, until the last of them is      *)
(* gone; in the queue they are side by side. In a world with named owners  *)
(* PlaceFits, PlaceGrant and PlaceEnter replace the operators Fits, Grant  *)
(* and Enter of module Queue, which know one ticket to a place. Modules    *)
(* Seam and Trace send the requests.                                       *)
(***************************************************************************)
EXTENDS Queue

CONSTANT Owned   \* the tickets of a named owner; each of the others owns itself

\* A store has one more field: size, the units of the place that a ticket is in. A
\* place keeps them when the ticket that took it leaves.
EmptyPlaces == [queue |-> <<>>, token |-> [t \in Tickets |-> 0], left |-> [t \in Tickets |-> 0],
                size |-> [t \in Tickets |-> 0], tombstone |-> {}, last |-> 0, clock |-> 0, grants |-> <<>>]

OneOwner(t, u) == t = u \/ (t \in Owned /\ u \in Owned /\ ~Flaw("owner-ignored"))
Size(t) == Units({t})
Sharers(s, t) == {u \in {s.queue[i] : i \in 1..Len(s.queue)} : OneOwner(t, u)}

\* The first ticket of a place counts for all of them.
First(s, i) == i = 1 \/ ~OneOwner(s.queue[i - 1], s.queue[i])
RECURSIVE Taken(_, _)
Taken(s, n) == IF n = 0 THEN 0 ELSE Taken(s, n - 1) + (IF First(s, n) THEN s.size[s.queue[n]] ELSE 0)
HeldUnits(s) == Taken(s, Len(s.queue) - Cardinality(Waits(s)))
AheadOf(s, t) == Cardinality({i \in 1..Place(s, t) : First(s, i)}) - 1

\* The tickets of a place are granted together, with one token.
RECURSIVE Give(_, _, _)
Give(s, S, n) == IF S = {} THEN s
                 ELSE LET t == CHOOSE u \in S : TRUE IN
                      Give([s EXCEPT !.token[t] = n, !.grants = Append(@, <<t, n>>)], S \ {t}, n)
PlaceFits(s) == Waits(s) # {} /\ Taken(s, NextUp(s)) <= Limit
PlaceGrant(s, t) ==
  LET n == NextToken(s) IN
  Give([s EXCEPT !.last = n, !.clock = @ + 1], Sharers(s, t), n)

\* Join 7: a ticket that asks for more units than its owner's place has is refused.
Upgrades(s, t) == /\ ~In(s, t) /\ t \notin s.tombstone /\ ~Flaw("upgrades")
                  /\ \E u \in Sharers(s, t) : Size(t) > s.size[u]
PlaceEnter(s, t) ==
  LET shares == Sharers(s, t)
      i == CHOOSE j \in 1..Len(s.queue) : s.queue[j] \in shares /\ \A k \in j + 1..Len(s.queue) : s.queue[k] \notin shares
      u == s.queue[i]
      here == [s EXCEPT !.left[t] = Kept]
  IN IF shares = {} THEN Advance([here EXCEPT !.queue = Append(@, t), !.size[t] = Size(t)])
     ELSE IF Upgrades(s, t) THEN s
     ELSE [here EXCEPT !.queue = SubSeq(@, 1, i) \o <<t>> \o SubSeq(@, i + 1, Len(@)),
                       !.token[t] = s.token[u], !.size[t] = s.size[u]]
=============================================================================
