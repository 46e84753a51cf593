-------------------------------- MODULE Served ------------------------------
(***************************************************************************)
(* What module Trace has of the recorded events, and of the store between  *)
(* them: the operators of module Queue with the time that passed, places   *)
(* that are dropped where they are in the way, and grants. A store without *)
(* an order grants whom it tells, and one that passes over a client        *)
(* without a connection for pushes grants the next one.                    *)
(***************************************************************************)
EXTENDS Places, Integers, TLC

CONSTANTS
  Traces,   \* sequences of events, see below
  Clients,  \* numbers of those that sent requests
  TTL,      \* units of a lease
  Lazy,     \* whether the store drops overdue places only where they are in the way
  Loose,    \* whether the time of an effect is known only to lie within its request
  Fair,     \* whether the store keeps an order; if not, who is told so holds next
  Apart,    \* whether the ticket that a Join replaces leaves by a request of its own
  Passes,   \* whether it passes over a waiter whose client has no connection for pushes
  Grain,    \* units by which a clock of the store may round a place's time
  Forget    \* ms after which a tombstone may be forgotten (Leave 4); 0: no trace takes as long

ASSUME TTL < Keep /\ 25 * (Keep - TTL) <= TTL   \* Join 9: a grace of at most 4 %

VARIABLES
  trace, at,  \* the trace, and the number of its next event
  event,      \* that event, or <<"end">>
  store,      \* see Queue
  client,     \* what each client has done, see NoClient
  seen,       \* <<n, r>>: token n of the specification is the r-th of those in the trace
  left,       \* tickets that left for certain: no Join of theirs follows (Join 2)
  overdue,    \* tickets whose place was dropped: a store may keep them gone
  died,       \* ms at which a ticket became a tombstone, or was dropped, if tombstones may be forgotten
  deaf,       \* clients that have no connection for pushes, where the store Passes
  user,       \* what the clients know of their tickets, and their users' holds, see NoUser
  taken       \* names of the parts of actions that the trace took

vars == <<trace, at, event, store, client, seen, left, overdue, died, deaf, user, taken>>

\* An event is a tuple; of a request whose ticket is 0 the rest does not matter. The
\* next one is a variable, since TLC walks through all of Traces for each definition
\* that leads there.
What == event[1]
Passed == event[2]    \* units since the last event
Sender == event[3]
Id == event[4]        \* of the ticket: its owner, units, whether it tries, and a number
State == event[5]
Token == event[6]     \* its rank among all tokens of the trace; 0: none
Lease == event[7]
Ahead == event[8]
Error == event[9]     \* the class of an error; "": none
Extra == event[10]    \* see the actions
Floor == event[11]    \* rank of the lowest token that the ticket accepts
Now == event[12]      \* ms since the trace began
Took == event[13]     \* units until the answer; 0 where not Loose
Coming == IF What = "end" THEN {} ELSE event[16]   \* tickets that had an event, and have this one or a later one
Given == event[14]    \* <<sent, lease, heard>>, ms, of an answer that its client was given; else <<>>
Hold == event[14][1]  \* of an event of the core: the hold's number, by LockDone
Local == event[14][2] \* and the part of its token that is the core's
CoreToken == 256 * Token + Local
Patience == 20   \* leases that a call waits at most without a ticket that waits
MayBeDeaf(c) == Passes /\ (event[15] \div (2 ^ (c - 1))) % 2 = 1   \* no push of its came since, before a gap
Meanwhile == IF What = "end" THEN {} ELSE event[17]   \* tickets that a later push calls held, and that may have been granted before this event
Pushed == IF What = "end" THEN {} ELSE event[18]     \* tickets that this push, or a later one, calls held
Rejoins == IF What = "end" THEN {} ELSE event[19]  \* tickets with a Join that is answered, this one or a later one

OwnerOf(t) == t \div 1000000   \* 0: the ticket owns itself
OneOwnerHere(t, u) == t = u \/ (OwnerOf(t) > 0 /\ OwnerOf(t) = OwnerOf(u))   \* in place of OneOwner
UnitsOf(t) == (t % 1000000) \div 2000
Tries(t) == (t \div 1000) % 2 = 1
TryingHere == {t \in Tickets : Tries(t)}   \* in place of Queue's Trying
\* In place of Queue's Units: a ticket of a semaphore may take any number of them.
RECURSIVE Sum(_), AgedOf(_, _), Serve(_), Cleared(_, _), Met(_, _)
Sum(S) == IF S = {} THEN 0 ELSE LET t == CHOOSE u \in S : TRUE IN UnitsOf(t) + Sum(S \ {t})

\* known: of a ticket, see Known; place: of a ticket, the token before those of its present
\* place; broken: those that an operator broke; holds, by number, and the open ones; last: the
\* highest token of one that excludes all others.
NoUser == [known |-> <<>>, place |-> <<>>, broken |-> {}, holds |-> <<>>, open |-> {}, last |-> 0]
NoClient == [traits |-> 0, watches |-> FALSE, closed |-> FALSE, mine |-> {}, unsure |-> {}]
Init ==
  /\ trace \in 1..Len(Traces) /\ at = 1 /\ event = Traces[trace][1] /\ store = EmptyPlaces
  /\ client = [c \in Clients |-> NoClient] /\ seen = {} /\ left = {} /\ overdue = {}
  /\ died = [t \in Tickets |-> 0] /\ deaf = {} /\ user = NoUser /\ taken = {}

\* The trace and the specification agree about one thing, or why they do not.
Same(what, spec, code) ==
  IF spec = code THEN TRUE ELSE PrintT(<<"REFUSED", trace, at, what, spec, code, store.queue, [t \in Granted(store) |-> store.token[t]]>>) /\ FALSE
Must(what, holds) == Same(what, TRUE, holds)

(************************* The store ***************************************)
Queued(s) == {s.queue[i] : i \in 1..Len(s.queue)}
\* A place that is overdue for long is as overdue as one that is so for four leases; where
\* it may be dropped at any time from its end on, all that are over are the same.
Older(n) == IF Loose THEN Max(n - Passed, 0) ELSE IF n < Passed - 4 * TTL THEN 0 - 4 * TTL ELSE n - Passed
AgedOf(times, S) ==
  IF S = {} THEN times ELSE LET t == CHOOSE u \in S : TRUE IN AgedOf([times EXCEPT ![t] = Older(@)], S \ {t})
\* The time of a Join that may still arrive counts from when it was sent, see Arrive.
OnTheWay == IF ~Loose THEN {} ELSE {u[2] : u \in {v \in UNION {client[c].unsure : c \in Clients} : v[1] = "join" /\ store.left[v[2]] > 0}}
Aged == IF Passed = 0 THEN store ELSE [store EXCEPT !.left = AgedOf(@, Queued(store) \cup OnTheWay)]
Over(s) == {t \in Queued(s) : s.left[t] <= 0}

\* Driver 6, in place of Queue's Advance: who is overdue is dropped, not granted.
InTheWay(s) == IF Loose THEN {} ELSE
  {t \in Over(s) : ~Lazy \/ s.token[t] > 0 \/ (Waits(s) # {} /\ OneOwner(s.queue[NextUp(s)], t))}
\* Without an order a ticket is granted when its client is told, behind those that hold.
SaysHeld(s) == State = "held" /\ StateAt(s, Id) = "waiting"
Called(s, u) == LET Those(P(_)) == SelectSeq(s.queue, LAMBDA t : t # u /\ P(t)) IN
  [s EXCEPT !.queue = Those(LAMBDA t : s.token[t] > 0) \o <<u>> \o Those(LAMBDA t : s.token[t] = 0)]
\* A waiter whose client is deaf is passed over, but for its own request (guarantees.md, Order).
Deaf(t) == t # Id /\ \E c \in deaf : MayBeDeaf(c) /\ t \in client[c].mine
Listening(s) == IF deaf = {} THEN s
            ELSE LET awake == {i \in Waits(s) : ~Deaf(s.queue[i])} IN
                 IF awake = {} THEN s ELSE Called(s, s.queue[CHOOSE i \in awake : \A j \in awake : i <= j])
KeptHere == IF Fair THEN Keep ELSE Lease   \* in place of Kept: a lease that is short is believed
Serve(s) == IF s.queue = <<>> THEN s
            ELSE LET way == InTheWay(s)
                     r == IF ~Fair /\ SaysHeld(s) THEN Called(s, Id) ELSE Listening(s) IN
                 IF way # {} THEN Serve(Drop(s, CHOOSE t \in way : TRUE))
                 ELSE IF (Fair \/ SaysHeld(s)) /\ Fits(r) /\ ~Deaf(r.queue[NextUp(r)]) THEN Serve(Grant(r, r.queue[NextUp(r)])) ELSE s

\* A request about t finds its place dropped if that is overdue.
Found(t) == LET s == Serve(Aged) IN IF ~Loose /\ t \in Over(s) THEN Serve(Drop(s, t)) ELSE s
\* The answer about a waiting ticket is after the overdue ones before it.
Cleared(s, t) ==
  IF Loose \/ StateAt(s, t) # "waiting" THEN s
  ELSE LET i == CHOOSE j \in 1..Place(s, t) : First(s, j) /\ \A k \in j + 1..Place(s, t) : ~First(s, k)
           way == IF i = 1 THEN {} ELSE Sharers(s, s.queue[i - 1]) \cap Over(s) \cap {s.queue[j] : j \in Waits(s)}
       IN IF way = {} THEN s ELSE Cleared(Drop(s, CHOOSE u \in way : TRUE), t)
\* Join 7: who joins an owner's place finds the overdue tickets there dropped.
Met(s, t) == LET way == IF Loose \/ In(s, t) THEN {} ELSE Sharers(s, t) \cap Over(s) IN
             IF way = {} THEN s ELSE Met(Drop(s, CHOOSE u \in way : TRUE), t)

(************************* The clients *************************************)
\* What a client knows of a ticket: the tokens that its last place was called Held with, and
\* the ms at which its claim ends, and after which it has heard that the ticket is gone, which
\* stays so. An answer is noted where its request takes effect: a push that is heard before it, or
\* in the same ms, counts.
Unheard == -2
Known(t) == IF t \in DOMAIN user.known THEN user.known[t] ELSE [tokens |-> {}, end |-> 0, place |-> 0, over |-> Unheard]
PlaceOf(t) == IF t \in DOMAIN user.place THEN user.place[t] ELSE 0
PlaceIn(s, r) == IF In(s, Id) \/ ~In(r, Id) THEN PlaceOf(Id) ELSE IF r.token[Id] > 0 THEN r.token[Id] - 1 ELSE s.last
\* What an answer, or a push without a claim, tells of a place: nothing of a later one (Join 2).
Knows(t, token, end, place) ==
  LET k == Known(t) IN
  IF (k.over # Unheard /\ k.over < Now) \/ place < k.place THEN user
  ELSE [user EXCEPT !.known = (t :> [k EXCEPT !.tokens = token \cup (IF place = k.place THEN @ ELSE {}), !.end = Max(@, end), !.place = place]) @@ @]
\* A client hears at ms that a ticket is gone. These tokens count until then, and nothing does that
\* it hears after the ms over.
Loses(t, tokens, ms, over) ==
  LET k == Known(t) IN
  [user EXCEPT !.known = (t :> [k EXCEPT !.tokens = tokens, !.end = IF @ < ms THEN @ ELSE ms, !.over = IF @ = Unheard \/ over < @ THEN over ELSE @]) @@ @]
\* The claim counts from the sending, and leaves 1 % for the rates of clocks.
Learns(place) == IF Given = <<>> THEN user
                 ELSE IF State = "gone" THEN Loses(Id, Known(Id).tokens, Given[3], Given[3])
                 ELSE Knows(Id, IF State = "held" THEN {Token} ELSE {}, Given[1] + Given[2] - Given[2] \div 100, place)
\* A ticket is given up: that ends what is known of it.
Forgets(u, S) == IF S \cap DOMAIN u.known = {} THEN u
                 ELSE [u EXCEPT !.known = [t \in DOMAIN @ \ S |-> @[t]]]
HoldsOf(S) == {n \in user.open : user.holds[n].ticket \in S}
\* The tickets of others that have a hold. An operator may break a ticket under its hold.
Others(t) == {user.holds[n].ticket : n \in user.open} \ (user.broken \cup {u \in Tickets : OneOwnerHere(t, u)})
\* Readers of one client hold together, with one ticket; 64 units stand for those of a read/write lock.
Reads(t) == Limit = 64 /\ UnitsOf(t) = 1
Excludes(t) == UnitsOf(t) = Limit
\* The client of t has a hold that was got two ms before, or more, with another ticket, and both are alone.
Second(t, ms) == /\ Excludes(t) /\ OwnerOf(t) = 0
                 /\ \E n \in user.open : LET h == user.holds[n] IN
                      h.client = Sender /\ h.since + 1 < ms /\ h.ticket # t /\ Excludes(h.ticket) /\ OwnerOf(h.ticket) = 0

(************************* What happens unseen *****************************)
\* What happens unseen waits for an event that may tell of it: one whose answer is known, and
\* without an order one about the ticket, or a grant, which only what holds keeps out.
Asks == What \in {"join", "renew", "leave", "break", "inspect", "names", "push"} /\ Error \in {"", "refused"}
Tells(t) == Asks /\ (Fair \/ t \in {Id} \cup Meanwhile \/ (store.token[t] > 0 /\ (State = "held" \/ Meanwhile # {})))
\* In a queue a place at the end tells only by who comes behind it, or by a view. Of two that
\* hold together, the tokens tell which came first.
Stands(t) == \/ ~Fair \/ t \in {Id} \cup Pushed \/ What \in {"inspect", "names"}
             \/ ~In(store, Id) /\ (State \in {"waiting", "held"} \/ (What = "join" /\ State = "gone"))

(************************* States that are one *****************************)
\* Where times and outcomes are open, states that differ in nothing that a later event can
\* tell are one (VIEW): what became of tickets without a place that neither have an event
\* nor a request under way, what the specification's tokens are beside their order, and
\* the parts that were taken. A trace is never accepted by that, since each state is one
\* that was reached; a view that left out too much would refuse more. Rough does that: it leaves
\* out the times as well, and what it refuses is looked at again by View.
LastToken(t) == LET mine == {i \in 1..Len(store.grants) : store.grants[i][1] = t} IN
                IF mine = {} THEN 0 ELSE store.grants[CHOOSE i \in mine : \A j \in mine : j <= i][2]
Differs(timed) ==
  LET late == {u[2] : u \in UNION {client[c].unsure : c \in Clients}} \ (left \cup store.tombstone)   \* no Join of the others takes a place
      matter == Queued(store) \cup Coming \cup late
      lasts == [t \in matter |-> IF t \in Pushed THEN LastToken(t) ELSE 0]
      tokens == {lasts[t] : t \in matter} \cup {store.token[t] : t \in Queued(store)}
      known == {p[1] : p \in seen}
      Rank(n) == IF n = 0 THEN <<>> ELSE
                 <<Cardinality({m \in tokens : m < n}), Cardinality({m \in known : m < n}), n \in known>>
      Holds(t) == Fair \/ store.token[t] > 0   \* without an order those that wait have none
  IN <<trace, at, client, left, deaf, SelectSeq(store.queue, Holds),
       [t \in Queued(store) |-> <<Rank(store.token[t]), store.size[t]>>],
       [t \in matter |-> <<Rank(lasts[t]), t \in store.tombstone \cap (Rejoins \cup late), t \in overdue \cap Rejoins, died[t], IF t \in store.tombstone \/ ~timed THEN 0 ELSE store.left[t]>>]>>
View == Differs(TRUE)
Rough == Differs(FALSE)
=============================================================================
