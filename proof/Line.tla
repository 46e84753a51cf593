-------------------------------- MODULE Line --------------------------------
(***************************************************************************)
(* A lock is a queue at a store. A client sends Join, Renew and Leave for  *)
(* its ticket; the queue's first tickets hold, as many as fit the limit.   *)
(* Requests are lost, delayed and repeated, answers are lost, pushes come  *)
(* late, twice or never, clients pause and clocks drift; tickets that are  *)
(* not renewed expire. Each action names the duty of package driver that   *)
(* it models, such as "Join 4".                                            *)
(*                                                                         *)
(* Assumed: a request at the store is one step (Driver 6); a tombstone     *)
(* outlives every request under way (Leave 4); the store does not forget   *)
(* (A3), except where Wipes > 0; clocks drift apart by at most Drift while *)
(* a claim lasts (A1); the store's clock does not stand still (A2). Time   *)
(* is what is left: of a place at the store, of a claim at the client.     *)
(***************************************************************************)
EXTENDS Queue

CONSTANTS
  Replacing,  \* tickets that replace a hold of their own client (Join 8)
  Steady,     \* for liveness: tickets that stay, and are answered within a lease
  Lease,      \* ticks that a claim lasts, counted from sending (Join 9)
  Drift,      \* ticks that a client's clock may fall behind the store's
  Clocks,     \* "apart"; "one": all tick together; "none": time stands still
  Pushes,     \* whether the store sends pushes (Watch 1)
  Tries,      \* Joins that a client sends for one ticket: its patience
  Lost,       \* tickets whose requests and answers may be lost
  Late,       \* requests under way at once whose caller gave up
  Grants,     \* above this many grants no late Join takes a place, which bounds tokens
  Pauses, Breaks, Wipes, Backs  \* how often each happens

ASSUME Writers \cup Trying \cup Replacing \cup Steady \cup Lost \subseteq Tickets
ASSUME Clocks \in {"apart", "one", "none"} /\ Lease > 1 /\ Pushes \in BOOLEAN

VARIABLES
  store,   \* see Empty
  client,  \* what each ticket's client knows, see Fresh
  late,    \* <<ticket, kind>>: requests that may still arrive, and again
  pushes,  \* <<ticket, state>>: past facts that may reach the client
  world,   \* how often something happened, and which tickets were broken
  before   \* history: whose place was confirmed when a ticket asked first

vars == <<store, client, late, pushes, world, before>>

Fresh == [state |-> "new", claim |-> 0, call |-> "none", sent |-> 0, answer |-> "none",
          pending |-> FALSE, leaving |-> "no", pushed |-> FALSE, tries |-> 0,
          paused |-> FALSE, behind |-> 0, token |-> 0]
Init == /\ store = Empty /\ client = [t \in Tickets |-> Fresh]
        /\ late = {} /\ pushes = {} /\ before = [t \in Tickets |-> {}]
        /\ world = [pauses |-> 0, wipes |-> 0, backs |-> 0, broken |-> [t \in Tickets |-> "no"]]

\* The store becomes s; those it grants on the way are told (Watch 1).
New(s) == {t \in Tickets : s.token[t] > 0 /\ s.token[t] # store.token[t]}
Told(s, cl, more) ==
  {p \in pushes \cup more \cup (IF Pushes THEN New(s) \X {"held"} ELSE {}) : cl[p[1]].state \notin {"new", "over"}}
Becomes(s, cl, more) == store' = s /\ client' = cl /\ pushes' = Told(s, cl, more)

Replaced(t) == {u \in Tickets : client[u].leaving = t}

(************************* The client **************************************)

Awake(t) == ~client[t].paused
\* A ticket ends: nothing is believed from here on. Leave follows, until it is
\* confirmed; with pending, a Join may still be on its way.
Over == [Fresh EXCEPT !.state = "over"]
Ends(c) == [Over EXCEPT !.leaving = "yes", !.pending = c.pending]
Gone(c) == IF c.pending THEN Ends(c) ELSE Over   \* the store says Gone
Timed(c) == c.claim > 0 \/ c.sent > 0
Noted(t, c) ==
  [c EXCEPT !.behind = IF Timed(c) \/ c.state = "held" THEN @ ELSE 0,
            !.token = IF c.state = "held" /\ client[t].state # "held" THEN store.token[t] ELSE @]
Knows(t, c) ==
  /\ client' = [client EXCEPT ![t] = Noted(t, c)]
  /\ pushes' = IF c.state = "over" THEN {p \in pushes : p[1] # t} ELSE pushes

\* A call that its caller gave up is lost, or late: nobody reads its answer.
MaybeLate(t) ==
  \/ late' = late
  \/ /\ t \in Lost /\ client[t].call # "none" /\ client[t].answer \in {"none", "looked"}
     /\ Cardinality(late) < Late /\ late' = late \cup {<<t, client[t].call>>}

\* The first Join. One that replaces ends the hold of its client first.
Ask(t) ==
  LET asks == [Fresh EXCEPT !.state = "asking", !.claim = Lease, !.call = "join", !.sent = Lease, !.tries = 1]
      here == [client EXCEPT ![t] = asks]
  IN /\ client[t].state = "new"
     /\ before' = [before EXCEPT ![t] = {u \in Tickets : client[u].state = "waiting"}]
     /\ IF t \notin Replacing THEN client' = here /\ pushes' = pushes
        ELSE \E u \in Tickets :
          /\ client[u].state = "held" /\ Awake(u) /\ client[u].call = "none" /\ client[u].claim > 0
          /\ client' = [here EXCEPT ![u] = [Ends(client[u]) EXCEPT !.leaving = IF client[u].pending THEN "yes" ELSE t]]
          /\ pushes' = {p \in pushes : p[1] # u}
     /\ UNCHANGED <<store, late, world>>

\* Join 1: the same Join again, one at a time (Driver 8), as often as the client's
\* patience allows, and for a lease from the first one: claim counts that here.
AskAgain(t) ==
  /\ client[t].state = "asking" /\ client[t].call = "none" /\ Awake(t)
  /\ client[t].tries < Tries /\ (client[t].claim > 0 \/ Flaw("deaf-repeats"))
  /\ Knows(t, [client[t] EXCEPT !.call = "join", !.sent = Lease,
                                   !.tries = IF Flaw("deaf-repeats") THEN @ ELSE @ + 1])
  /\ UNCHANGED <<store, late, world, before>>

\* A claim that is over is not renewed: after silence for a lease the client
\* does not keep its place blindly.
SendRenew(t) ==
  /\ client[t].state \in {"waiting", "held"} /\ client[t].call = "none" /\ Awake(t)
  /\ client[t].claim < Lease
  /\ client[t].claim > 0 \/ (Flaw("deaf-repeats") /\ client[t].state = "waiting")
  /\ Knows(t, [client[t] EXCEPT !.call = "renew", !.sent = Lease])
  /\ UNCHANGED <<store, late, world, before>>

\* Join and Renew take effect, each as one step.
Arrive(t) ==
  LET c == client[t]
      s == IF c.call = "join" THEN JoinAt(store, t, Replaced(t)) ELSE RenewAt(store, t)
      taken == IF In(store, t) THEN store
               ELSE Grant([store EXCEPT !.queue = <<t>> \o @, !.left[t] = Keep], t)
      looks == \/ Flaw("racy") /\ c.call = "join" /\ store.queue = <<>>
               \/ Flaw("late-renewal") /\ c.call = "renew" /\ StateAt(store, t) = "held"
      says == IF c.call = "renew" /\ Flaw("lost-wake-up") /\ c.state = "waiting" THEN "waiting"
              ELSE StateAt(s, t)
  IN /\ c.call # "none" /\ UNCHANGED <<late, world, before>>
     /\ \/ c.answer = "none" /\ ~looks /\ Becomes(s, [client EXCEPT ![t].answer = says], {})
        \/ c.answer = "none" /\ looks /\ Becomes(store, [client EXCEPT ![t].answer = "looked"], {})
        \/ c.answer = "looked" /\ Becomes(IF c.call = "join" THEN taken ELSE store, [client EXCEPT ![t].answer = "held"], {})

\* A request that its caller gave up arrives: never, once, or again and again.
LateArrives ==
  \E r \in late :
    /\ r[2] = "join" => In(store, r[1]) \/ Len(store.grants) + Cardinality(Waits(store)) < Grants
    /\ Becomes(IF r[2] = "join" THEN JoinAt(store, r[1], Replaced(r[1])) ELSE RenewAt(store, r[1]), client, {})
    /\ UNCHANGED <<late, world, before>>

Sent(c) == IF Flaw("from-answer") THEN Lease ELSE c.sent
\* Join 9: the claim counts from sending. An answer older than its lease is none;
\* nor is one that comes a lease after the first of several Joins: the place of
\* that one may have been granted, told by a push, and dropped in between.
JoinReply(t) ==
  LET c == client[t]
      gives == [c EXCEPT !.call = "none", !.sent = 0, !.answer = "none", !.claim = Sent(c), !.pushed = FALSE,
                         !.tries = 0, !.state = IF c.answer = "held" \/ c.pushed THEN "held" ELSE "waiting"]
      stale == Sent(c) = 0 \/ (c.pending /\ c.claim = 0 /\ ~Flaw("asked-forgotten"))
      next == IF c.answer = "gone" THEN Gone(c) ELSE IF stale THEN Ends(c) ELSE gives
      done(u) == client[u].leaving = t
  IN /\ c.call = "join" /\ c.answer \notin {"none", "looked"} /\ Awake(t)
     /\ client' = [u \in Tickets |-> IF u = t THEN Noted(t, next)
                    ELSE IF done(u) THEN (IF c.answer = "gone" THEN [client[u] EXCEPT !.leaving = "yes"] ELSE Over)
                    ELSE client[u]]
     /\ pushes' = IF next.state = "over" THEN {p \in pushes : p[1] # t} ELSE pushes
     /\ UNCHANGED <<store, late, world, before>>

\* Renew 3: what the store found, also a grant. A state that went back is a loss.
RenewReply(t) ==
  LET c == client[t]
      n == IF Flaw("long-lease") THEN Sent(c) + Drift + 1 ELSE Sent(c)
      keeps == [c EXCEPT !.call = "none", !.sent = 0, !.answer = "none", !.claim = Max(@, n), !.state = c.answer]
  IN /\ c.call = "renew" /\ c.answer \notin {"none", "looked"} /\ Awake(t)
     /\ (c.state = "held") => (c.claim > 0)
     /\ Knows(t, IF c.answer = "gone" THEN Gone(c)
                    ELSE IF (c.state = "held" /\ c.answer = "waiting") \/ keeps.claim = 0 THEN Ends(c) ELSE keeps)
     /\ UNCHANGED <<store, late, world, before>>

\* A call's time is over. Its outcome is unknown (Driver 2).
GiveUp(t) ==
  LET c == client[t]
      gone == Flaw("gone-by-clock") /\ c.call = "renew"   \* Renew 7
  IN /\ t \in Lost /\ c.call # "none" /\ Awake(t)
     /\ t \in Steady => c.call = "renew" /\ c.claim > 1   \* there is time for another one
     /\ Knows(t, IF gone THEN Gone(c) ELSE
                    [c EXCEPT !.call = "none", !.sent = 0, !.answer = "none",
                              !.pending = @ \/ (c.call = "join" /\ ~Flaw("unsure-forgotten"))])
     /\ MaybeLate(t) /\ UNCHANGED <<store, world, before>>

\* Watch 1 and 2: a push may be first, late, or repeated; it extends no claim.
Push(t) ==
  LET c == client[t]
      held == [c EXCEPT !.state = "held", !.claim = IF Flaw("push-extends") THEN Lease ELSE @]
  IN /\ Awake(t) /\ UNCHANGED <<store, late, world, before>>
     /\ \/ /\ <<t, "held">> \in pushes
           /\ \/ c.state = "asking" /\ Knows(t, [c EXCEPT !.pushed = TRUE])
              \/ c.state = "waiting" /\ c.claim > 0 /\ Knows(t, held)
        \/ /\ <<t, "gone">> \in pushes /\ c.state \in {"waiting", "held"}
           /\ Knows(t, IF Flaw("gone-as-held") /\ c.state = "waiting" THEN held ELSE Gone(c))

\* Unlock, an abandoned wait, or silence for longer than a lease while waiting.
Stop(t) ==
  /\ Awake(t) /\ t \notin Steady
  /\ \/ client[t].state \in {"waiting", "held"}
     \/ client[t].state = "asking" /\ client[t].call = "none"
  /\ MaybeLate(t) /\ UNCHANGED <<world, before>>
  /\ IF Flaw("leaves-first") /\ client[t].state = "held" THEN Becomes(LeaveAt(store, t, FALSE), client, {})
     ELSE Knows(t, Ends(client[t])) /\ UNCHANGED store

\* The claim of a hold is over: its loss is told, before the clock moves on.
ClaimOver(t) == client[t].state = "held" /\ client[t].claim = 0 /\ Awake(t)
TellLoss(t) ==
  /\ ClaimOver(t) /\ MaybeLate(t) /\ Knows(t, Ends(client[t])) /\ UNCHANGED <<store, world, before>>

\* Leave is sent until it is answered, and may arrive more often than that.
LeaveArrives(t) ==
  LET c == client[t]
      s == IF Flaw("unsure-early") /\ c.pending THEN store ELSE LeaveAt(store, t, c.pending)
      sends == c.leaving = "yes" \/ (c.leaving \in Tickets /\ client[c.leaving].state = "over")
  IN /\ sends /\ UNCHANGED <<late, world, before>>
     /\ \/ Becomes(s, [client EXCEPT ![t] = Over], {})
        \/ t \in Lost /\ s # store /\ Becomes(s, client, {})

(************************* The world ***************************************)

\* Driver 6: a place whose time is over is dropped, now or later.
Expire == \E t \in Tickets :
  /\ In(store, t) /\ store.left[t] = 0 /\ ~Flaw("immortal")
  /\ Becomes(Remove(store, t), client, {}) /\ UNCHANGED <<late, world, before>>

\* Break 2 and 3: an operator removes one ticket, and its id stays gone (Join 2).
Break(t) ==
  LET s == Remove(store, t) IN
  /\ Cardinality({u \in Tickets : world.broken[u] # "no"}) < Breaks /\ In(store, t) /\ t \notin Steady
  /\ world' = [world EXCEPT !.broken[t] = StateAt(store, t)]
  /\ Becomes(IF Flaw("broken-forgotten") THEN s ELSE [s EXCEPT !.tombstone = @ \cup {t}], client,
             IF Pushes THEN {<<t, "gone">>} ELSE {})
  /\ UNCHANGED <<late, before>>

\* A pause ends with a look at the clock in the same step, as Err does.
Pause(t) == /\ world.pauses < Pauses /\ Awake(t) /\ client[t].state \in {"asking", "waiting", "held"} /\ t \notin Steady
            /\ world' = [world EXCEPT !.pauses = @ + 1] /\ client' = [client EXCEPT ![t].paused = TRUE]
            /\ UNCHANGED <<store, late, pushes, before>>
Resume(t) ==
  LET c == [client[t] EXCEPT !.paused = FALSE] IN
  /\ ~Awake(t) /\ UNCHANGED <<store, late, world, before>>
  /\ Knows(t, IF c.state = "held" /\ c.claim = 0 /\ ~Flaw("resume-blind") THEN Ends(c) ELSE c)

Tock(c) == [c EXCEPT !.claim = Less(@), !.sent = Less(@)]
Aged == [store EXCEPT !.left = [t \in Tickets |-> Less(@[t])]]
Runs == Clocks # "none" /\ \E t \in Tickets : Timed(client[t]) \/ store.left[t] > 0

\* Drift: the store's clock runs ahead by at most Drift while a claim lasts.
StoreTick ==
  /\ Runs /\ Clocks = "apart" /\ \A t \in Tickets : (Timed(client[t]) \/ ClaimOver(t)) => client[t].behind < Drift
  /\ store' = Aged
  /\ client' = [t \in Tickets |-> [client[t] EXCEPT !.behind = IF Timed(client[t]) \/ ClaimOver(t) THEN @ + 1 ELSE 0]]
  /\ UNCHANGED <<late, pushes, world, before>>
ClientTick(t) ==
  /\ Clocks = "apart" /\ Timed(client[t]) /\ client[t].behind > 0 /\ ~ClaimOver(t)
  /\ client' = [client EXCEPT ![t] = [Tock(@) EXCEPT !.behind = @ - 1]]
  /\ UNCHANGED <<store, late, pushes, world, before>>
\* One clock; a Steady ticket is answered within its lease.
Tick ==
  /\ Runs /\ Clocks = "one" /\ \A t \in Tickets : ~ClaimOver(t)
  /\ \A t \in Steady : client[t].state \in {"waiting", "held"} => client[t].claim > 1
  /\ \A t \in Steady : client[t].call # "none" => client[t].sent > 1
  /\ store' = Aged /\ client' = [t \in Tickets |-> Tock(client[t])]
  /\ UNCHANGED <<late, pushes, world, before>>

\* The store loses its data, or its clock is set back: Join 5 holds all the same.
Wipe == /\ world.wipes < Wipes /\ world.backs = 0
        /\ store' = [Empty EXCEPT !.clock = store.clock, !.grants = store.grants,
                                  !.token = IF Flaw("wiped-in-part") THEN store.token ELSE @]
        /\ world' = [world EXCEPT !.wipes = @ + 1] /\ UNCHANGED <<client, late, pushes, before>>
SetBack == /\ world.backs < Backs /\ world.wipes = 0
           /\ store' = [store EXCEPT !.clock = 0]
           /\ world' = [world EXCEPT !.backs = @ + 1] /\ UNCHANGED <<client, late, pushes, before>>

Next == \/ \E t \in Tickets : Ask(t) \/ AskAgain(t) \/ SendRenew(t) \/ Arrive(t) \/ JoinReply(t) \/ RenewReply(t)
                             \/ GiveUp(t) \/ Push(t) \/ Stop(t) \/ TellLoss(t) \/ LeaveArrives(t)
                             \/ Break(t) \/ Pause(t) \/ Resume(t) \/ ClientTick(t)
        \/ LateArrives \/ Expire \/ StoreTick \/ Tick \/ Wipe \/ SetBack
Spec == Init /\ [][Next]_vars

(************************* What must hold **********************************)

\* A broken ticket may be believed in until its client hears of it (Break 2).
Believed == {t \in Tickets : client[t].state = "held" /\ client[t].claim > 0 /\ world.broken[t] # "held"}
Untold == {t \in Tickets : client[t].state = "held" /\ Awake(t) /\ world.broken[t] # "held"}

Exclusion == Units(Believed) <= Limit                           \* Err() == nil at once
ToldFirst == Units(Untold \cup Granted(store)) <= Limit          \* a loss is told before another's grant
StoreLimit == Units(Granted(store)) <= Limit
OwnLeave == \A t \in Believed : store.token[t] > 0 /\ store.token[t] = client[t].token  \* nobody else frees a hold
Grow == \A i \in 1..Len(store.grants) - 1 : store.grants[i][2] < store.grants[i + 1][2]
Fifo == \A t \in Tickets : \A u \in before[t] : store.token[t] > 0 => StateAt(store, u) # "waiting"
GoneFinal == \A t \in Tickets : client[t].state = "over" /\ client[t].leaving = "no" => ~In(store, t)
BrokenFinal == \A t \in Tickets : world.broken[t] # "no" => ~In(store, t)
TryLeavesNothing == \A t \in Trying : StateAt(store, t) # "waiting"
NoIdleRoom == ~Fits(store)                                      \* nobody waits while there is room

\* The queue of module LineAbs: the store's, and the clients' belief in it.
Abs == INSTANCE LineAbs WITH
  Numbers <- Nat, line <- store.queue, token <- store.token,
  uses <- [t \in Tickets |-> IF t \in Believed THEN Max(client[t].token, 1) ELSE 0],
  last <- IF store.grants = <<>> THEN 0 ELSE store.grants[Len(store.grants)][2],
  over <- {t \in Tickets : (client[t].state = "over" /\ client[t].leaving = "no") \/ world.broken[t] # "no"}
Refines == Abs!Spec
=============================================================================
