------------------------------ MODULE LineReach -----------------------------
(***************************************************************************)
(* What the properties of module Line are about does happen. Each formula  *)
(* says that it never does, and has to be refuted: a property that nothing *)
(* could violate would say nothing.                                        *)
(***************************************************************************)
EXTENDS Line

\* Fifo: somebody asks while another waits, and waits as well.
NeverTwoWait == \A t, u \in Tickets : u \in before[t] => StateAt(store, t) # "waiting"
\* Join 1: a Join whose caller gave up has been granted.
NeverGrantedUnheard == \A t \in Tickets : ~(client[t].pending /\ store.token[t] > 0)
\* Join 2, Leave 4: a Join arrives after its ticket has left.
NeverLateAfterLeave == \A r \in late : ~(r[2] = "join" /\ client[r[1]].state = "over" /\ client[r[1]].leaving = "no")
\* Exclusion: a pause outlasts a claim, and somebody else is granted meanwhile.
NeverPausedPastClaim == \A t \in Tickets : ~(client[t].paused /\ client[t].state = "held" /\ client[t].claim = 0)
NeverGrantedMeanwhile == \A t, u \in Tickets :
  ~(t # u /\ client[t].state = "held" /\ client[t].paused /\ client[u].state = "held" /\ client[u].claim > 0)
\* Driver 6: a place is overdue, and still there.
NeverOverdue == \A t \in Tickets : ~(In(store, t) /\ store.left[t] = 0)
\* Watch 1: a push comes before the answer.
NeverPushFirst == \A t \in Tickets : ~client[t].pushed
\* Renew 2: the answer to a renewal says Gone.
NeverRenewedGone == \A t \in Tickets : ~(client[t].call = "renew" /\ client[t].answer = "gone")
=============================================================================
