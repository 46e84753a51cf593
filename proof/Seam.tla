-------------------------------- MODULE Seam --------------------------------
(***************************************************************************)
(* Every request at the seam, in every state of a small queue: what a      *)
(* driver has to answer, and the queue that it has to leave. There are no  *)
(* messages and no clock; Expire is an action. internal/proof makes walks  *)
(* out of the graph of this module that go over each of its edges, and     *)
(* case edges of package drivertest plays them on every store.             *)
(*                                                                         *)
(* The operators of the store are those of module Queue, which counts      *)
(* tokens without an end. Here a token is the rank among those of the      *)
(* places that hold, which keeps the graph finite; the case checks that    *)
(* tokens grow. In two of the graphs tickets have a named owner.           *)
(***************************************************************************)
EXTENDS Places

CONSTANT Mates   \* tickets of one client, which may replace each other (Join 8)

VARIABLES
  queue,  \* tickets in order
  held,   \* those of them that hold
  wide,   \* those whose owner's place has more units than they ask for (Join 7)
  gone,   \* ids that stay gone (Join 2, Leave 4)
  did,    \* the last request: what, whose ticket, and the ticket that it replaces
  says    \* its answer

vars == <<queue, held, wide, gone, did, says>>

None == "-"
Init == queue = <<>> /\ held = {} /\ wide = {} /\ gone = {} /\ did = <<"init", None, None>> /\ says = None

Queued == {queue[i] : i \in 1..Len(queue)}
Begins(t) == CHOOSE i \in 1..Len(queue) : OneOwner(queue[i], t) /\ \A j \in 1..i - 1 : ~OneOwner(queue[j], t)
Here == [EmptyPlaces EXCEPT !.queue = queue, !.tombstone = gone, !.last = Len(queue),
         !.left = [t \in Tickets |-> IF t \in Queued THEN Keep ELSE 0],
         !.size = [t \in Tickets |-> IF t \in wide THEN Limit ELSE IF t \in Queued THEN Size(t) ELSE 0],
         !.token = [t \in Tickets |-> IF t \in held THEN Begins(t) ELSE 0]]
Becomes(s) == /\ queue' = s.queue /\ held' = Granted(s) /\ gone' = s.tombstone
              /\ wide' = {t \in Tickets : In(s, t) /\ s.size[t] > Size(t) /\
                          (Flaw("place-shrinks") => \E u \in Sharers(s, t) : s.size[u] = Size(u))}
Does(what, t, u, answer, s) == did' = <<what, t, u>> /\ says' = answer /\ Becomes(s)

\* Join 1 to 4: a new ticket, one that has a place, and one that stays gone.
Join(t) ==
  LET s == JoinAt(Here, t, {}) IN
  IF Upgrades(Here, t) THEN Does("join", t, None, "refused", Here)
  ELSE Does("join", t, None, StateAt(s, t), s)
Try(t) ==
  LET s == JoinAt(Here, t, {}) IN
  IF Upgrades(Here, t) THEN Does("try", t, None, "refused", Here)
  ELSE IF StateAt(s, t) = "waiting" THEN Does("try", t, None, "gone", Remove(s, t))
  ELSE Does("try", t, None, StateAt(s, t), s)
\* Join 8.
Replace(t, u) ==
  /\ t \in Mates /\ u \in Mates \cap held /\ t \notin Queued /\ t \notin gone
  /\ LET s == JoinAt(Here, t, {u}) IN Does("replace", t, u, StateAt(s, t), s)
\* Renew 2 and 3.
Renew(t) == LET s == RenewAt(Here, t) IN Does("renew", t, None, StateAt(s, t), s)
\* Leave 1, 2 and 4. A ticket that has left for certain does not join again (Join 2):
\* its client goes on with another one.
All(bad, s, t) == LET others == {u \in Tickets : In(s, u) /\ OneOwner(t, u)} IN
                   IF bad /\ others # {} THEN Remove(s, CHOOSE u \in others : TRUE) ELSE s
Leave(t) == Does("leave", t, None, StateAt(Here, t),
                 All(Flaw("owner-leaves"), [LeaveAt(Here, t, FALSE) EXCEPT !.tombstone = @ \ {t}], t))
LeavePending(t) == Does("pending", t, None, StateAt(Here, t), LeaveAt(Here, t, TRUE))
\* Break 1 and 3.
Break(t) ==
  IF t \in Queued THEN Does("break", t, None, "done",
                           All(Flaw("break-owner"), [Remove(Here, t) EXCEPT !.tombstone = @ \cup {t}], t))
  ELSE Does("break", t, None, "no ticket", Here)
\* Driver 6: the place of a ticket that is not renewed ends.
Expire(t) == t \in Queued /\ Does("expire", t, None, "done", All(Flaw("owner-dies"), Remove(Here, t), t))
\* The client goes on with another ticket: an id that is gone is of no use.
Fresh(t) == t \in gone /\ Does("fresh", t, None, "done", [Here EXCEPT !.tombstone = @ \ {t}])

Next == \E t \in Tickets :
  \/ Join(t) \/ Try(t) \/ Renew(t) \/ Leave(t) \/ LeavePending(t) \/ Break(t) \/ Expire(t) \/ Fresh(t)
  \/ \E u \in Tickets \ {t} : Replace(t, u)
Spec == Init /\ [][Next]_vars

StoreLimit == HeldUnits(Here) <= Limit
\* Join 2: a Join of an id that is gone changes nothing, whichever ticket it replaces.
GoneStays == \A t \in gone : \A S \in {{}} \cup {{u} : u \in Tickets \ {t}} : JoinAt(Here, t, S) = Here
NoIdleRoom == ~Fits(Here)
InOrder == \A i, j \in 1..Len(queue) : i < j /\ queue[j] \in held => queue[i] \in held
\* Join 7: an owner has one place, and all of its tickets hold, or none.
OwnerShares == \A i, j \in 1..Len(queue) : i < j /\ {queue[i], queue[j]} \subseteq Owned =>
                 /\ (queue[i] \in held) = (queue[j] \in held)
                 /\ \A k \in i..j : queue[k] \in Owned
UpgradeRefused == \A t \in Queued : Size(t) <= Here.size[t] /\ \A u \in Sharers(Here, t) : Here.size[u] = Here.size[t]
\* Leave 2: of several tickets of an owner one leaves, and the place stays as it was.
OneLeaves == [][\A t \in Queued \cap Owned :
                  (t # did'[2] /\ t # did'[3]) => In(Here', t) /\ (t \in held => t \in held')]_vars
PlaceStays == [][\A t \in Queued \cap Owned : In(Here', t) /\ did'[2] # t => Here'.size[t] = Here.size[t]]_vars
=============================================================================
