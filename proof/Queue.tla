-------------------------------- MODULE Queue -------------------------------
(***************************************************************************)
(* The queue of one lock at its store, and its requests. Each request is   *)
(* one step (Driver 6), given as a function from the store before to the   *)
(* store after. The first tickets hold, as many as fit the limit. Module   *)
(* Line sends these requests.                                              *)
(*                                                                         *)
(* A store is a record: queue, the tickets in order; token, 0 or a fencing *)
(* token; left, ticks until the place may be dropped; tombstone, ids that  *)
(* stay gone; last, the last token; clock, which moves on with each grant; *)
(* grants, a history that no request reads.                                *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Tickets,    \* each is one attempt of one client, with an id of its own
  Writers,    \* take the whole limit; all others take one unit
  Trying,     \* ask with wait=false (Join 4)
  Limit,      \* units that fit the queue, whatever ticket comes
  Keep,       \* ticks that the store keeps a place, counted from handling
  Bug         \* "none", or a flaw that the properties have to refute

ASSUME Limit > 0 /\ Keep \in Nat   \* Driver 9: every ticket takes 1 or Limit units

Empty == [queue |-> <<>>, token |-> [t \in Tickets |-> 0], left |-> [t \in Tickets |-> 0],
          tombstone |-> {}, last |-> 0, clock |-> 0, grants |-> <<>>]

Max(a, b) == IF a > b THEN a ELSE b
Less(a) == IF a > 0 THEN a - 1 ELSE 0
Flaw(name) == Bug = name

In(s, t) == \E i \in 1..Len(s.queue) : s.queue[i] = t
Place(s, t) == CHOOSE i \in 1..Len(s.queue) : s.queue[i] = t
Granted(s) == {t \in Tickets : s.token[t] > 0}
StateAt(s, t) == IF ~In(s, t) THEN "gone" ELSE IF s.token[t] > 0 THEN "held" ELSE "waiting"
Units(S) == Cardinality(S \ Writers) + Limit * Cardinality(S \cap Writers)

\* Join 5: above the last token, and above the store's clock.
NextToken(s) == IF Flaw("counter-only") \/ Flaw("idle-restarts") THEN s.last + 1
                ELSE IF Flaw("clock-only") THEN s.clock + 1 ELSE Max(s.last, s.clock) + 1
Shown(n) == IF Flaw("rounded") THEN 2 * ((n + 1) \div 2) ELSE n
Grant(s, t) ==
  LET n == IF Flaw("readers-untold") /\ t \notin Writers /\ s.last > 0 THEN s.last ELSE NextToken(s) IN
  [s EXCEPT !.token[t] = Shown(n), !.last = n, !.clock = @ + 1, !.grants = Append(@, <<t, Shown(n)>>)]

\* Driver 6: tickets whose turn it is are granted, in order.
Waits(s) == {i \in 1..Len(s.queue) : s.token[s.queue[i]] = 0}
NextUp(s) == CHOOSE i \in Waits(s) : \A j \in Waits(s) : i <= j
Fits(s) == /\ Waits(s) # {}
           /\ LET upto == {s.queue[j] : j \in 1..NextUp(s)} IN
              IF Flaw("heads-counted") THEN Cardinality(upto) <= Limit
              ELSE Units(upto) <= Limit + (IF Flaw("two-holders") THEN 1 ELSE 0)
RECURSIVE Advance(_)
Advance(s) == IF Fits(s) THEN Advance(Grant(s, s.queue[NextUp(s)])) ELSE s

\* A place ends, and the next ones are granted by the same request (Leave 5).
Drop(s, t) ==
  LET q == SelectSeq(s.queue, LAMBDA u : u # t) IN
  [s EXCEPT !.queue = q, !.token[t] = 0, !.left[t] = 0,
            !.last = IF q = <<>> /\ (Flaw("idle-restarts") \/ Flaw("idle-forgotten")) THEN 0 ELSE @]
Remove(s, t) ==
  LET r == Drop(s, t) IN
  IF Flaw("leave-grants-not") THEN r
  ELSE IF Flaw("first-leaver-frees") /\ s.token[t] > 0 /\ Waits(r) # {} THEN Grant(r, r.queue[NextUp(r)])
  ELSE Advance(r)

Kept == IF Flaw("client-clock") THEN Less(Less(Keep)) ELSE Keep
Renewed(s, t) == [s EXCEPT !.left[t] = Max(@, Kept)]

\* Join 3: a place at the end of the queue. Nobody is overtaken.
Enter(s, t) ==
  LET n == Len(s.queue) - Cardinality(Waits(s))
      q == IF Flaw("last-come") THEN SubSeq(s.queue, 1, n) \o <<t>> \o SubSeq(s.queue, n + 1, Len(s.queue))
           ELSE Append(s.queue, t)
      r == [s EXCEPT !.queue = q, !.left[t] = Kept]
      rude == (Flaw("try-overtakes") /\ t \in Trying) \/ (Flaw("readers-overtake") /\ t \notin Writers)
  IN IF rude /\ Units(Granted(s) \cup {t}) <= Limit THEN Grant(r, t) ELSE Advance(r)

Again(s, t) == IF Flaw("join-renews-not") THEN s
               ELSE IF Flaw("counting-joins") THEN [Renewed(s, t) EXCEPT !.queue = Append(@, t)]
               ELSE IF Flaw("repeat-moves-up") /\ s.token[t] = 0 /\ Place(s, t) > 1
                    THEN LET n == Place(s, t) IN Renewed([s EXCEPT !.queue[n] = s.queue[n - 1], !.queue[n - 1] = t], t)
               ELSE Renewed(s, t)

\* Join of t, which replaces the tickets of a set that has one or none (Join 8).
JoinAt(s, t, replaced) ==
  LET u == CHOOSE v \in replaced : TRUE
      gone == t \in s.tombstone                             \* Join 2: it stays gone, and changes nothing
      leaves == replaced # {} /\ In(s, u) /\ ~Flaw("replaces-not") /\ (~gone \/ Flaw("gone-replaces"))
      s1 == IF leaves THEN Remove(s, u) ELSE s
      s2 == IF gone THEN s1
            ELSE IF In(s1, t) THEN Again(s1, t)              \* Join 1: found, and renewed
            ELSE IF Flaw("replaces-token") /\ replaced # {} /\ s.token[u] > 0
                 THEN Enter([s1 EXCEPT !.last = s.token[u] - 1, !.clock = 0], t)
            ELSE Enter(s1, t)
  IN IF t \in Trying /\ StateAt(s2, t) = "waiting" /\ ~Flaw("leaked-waiter") THEN Drop(s2, t) ELSE s2   \* Join 4

\* Renew 2: it keeps a place, and never makes one.
RenewAt(s, t) == IF In(s, t) THEN (IF Flaw("renews-not") THEN s ELSE Renewed(s, t))
                 ELSE IF Flaw("revives") THEN Grant([s EXCEPT !.queue = <<t>> \o @, !.left[t] = Keep], t) ELSE s

\* Leave 2: only the ticket itself leaves.
OneLess(s, t) ==
  LET q == SubSeq(s.queue, 1, Place(s, t) - 1) \o SubSeq(s.queue, Place(s, t) + 1, Len(s.queue)) IN
  IF Flaw("abandons") /\ s.token[t] = 0 THEN s
  ELSE IF Flaw("counting-joins") /\ \E j \in 1..Len(q) : q[j] = t THEN [s EXCEPT !.queue = q]
  ELSE Remove(s, t)
Stranger(s) == s.queue # <<>> /\ (Flaw("strangers-leave") \/ (Flaw("leave-counts-down") /\ s.queue[1] \notin Writers))
\* Leave 4: where a Join may be pending, the id stays gone.
LeaveAt(s, t, pending) ==
  LET s1 == IF In(s, t) THEN OneLess(s, t) ELSE IF Stranger(s) THEN Remove(s, s.queue[1]) ELSE s
      s2 == IF Flaw("leave-is-release") /\ Waits(s1) # {} THEN Grant(s1, s1.queue[NextUp(s1)]) ELSE s1
  IN IF pending /\ ~Flaw("unsure-leaks") /\ ~(Flaw("left-forgotten") /\ In(s, t))
     THEN [s2 EXCEPT !.tombstone = @ \cup {t}] ELSE s2
=============================================================================
