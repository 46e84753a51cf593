------------------------------ MODULE LineLive ------------------------------
(***************************************************************************)
(* That waits end: what module Line says of a ticket that stays, beside    *)
(* others that may die, pause, or hear no answers. All pushes may be lost. *)
(*                                                                         *)
(* Each condition is a sentence about the world:                           *)
(*   Served    the store answers a Steady ticket within its lease          *)
(*   Time      clocks go on                                                *)
(*   Drops     the store drops a place some time after its end (Driver 6)  *)
(*   Releases  a client that runs does not hold for ever                   *)
(* Nothing is assumed about Leave: a place that nobody renews ends.        *)
(***************************************************************************)
EXTENDS Line

ASSUME Late = 0 /\ Clocks = "one"   \* nothing is replayed for ever

Served == \E t \in Steady : Arrive(t) \/ JoinReply(t) \/ RenewReply(t) \/ SendRenew(t)
Releases == \E t \in Tickets \ Steady : client[t].state = "held" /\ Stop(t)

LiveSpec == /\ Spec
            /\ SF_vars(~Flaw("no-time") /\ Tick)
            /\ WF_vars(~Flaw("no-drops") /\ Expire)
            /\ WF_vars(~Flaw("not-served") /\ Served)
            /\ WF_vars(~Flaw("no-release") /\ Releases)

\* A wait ends with a grant, whatever becomes of the others (Renew 3).
WaitEnds == \A t \in Steady : (client[t].state = "asking") ~> (client[t].state = "held")
\* A ticket that is over has no place for ever.
NothingStays == \A t \in Tickets : (client[t].state = "over") ~> ~In(store, t)
=============================================================================
