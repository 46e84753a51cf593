-------------------------------- MODULE Trace -------------------------------
(***************************************************************************)
(* Traces of a real store, held against module Queue. The Go package trace *)
(* records requests with their answers in the order in which the store     *)
(* carried them out, and writes them as a module that extends this one.    *)
(* Each event has one action, which applies the store's operator of module *)
(* Queue and compares what comes of it with what was answered. A trace is  *)
(* accepted if each of its events is taken; where nothing is left open, n  *)
(* events make n + 1 states. An event that cannot be taken prints why.     *)
(* Events of what a client tells its user stand between the requests: a    *)
(* hold is judged by what its client has heard.                            *)
(*                                                                         *)
(* Time is that of the store's clock. A lease is TTL units, whatever its   *)
(* length was, so that Keep, the lease and its grace, is one constant.     *)
(***************************************************************************)
EXTENDS Served

Lapsed(s, leaving) == Queued(store) \ (Queued(s) \cup leaving)
Gone(S) == died' = IF S = {} \/ Forget = 0 THEN died ELSE [t \in Tickets |-> IF t \in S THEN Now ELSE died[t]]
\* The end of the claim to a ticket, as far as its client knows.
End(t) == IF t \in DOMAIN user.known THEN user.known[t].end ELSE 0
\* A request has found the store as s, and made it r; leaving has left by itself.
Becomes(s, r, leaving) ==
  /\ store' = r /\ overdue' = overdue \cup Lapsed(s, {}) \cup Lapsed(r, leaving)
  /\ Gone(Lapsed(s, {}) \cup Lapsed(r, leaving) \cup (IF What = "leave" /\ Extra = 1 THEN {Id} ELSE {}))
\* The event is taken, by a part of its action that has this name.
TakesWith(name, u) ==
  /\ trace' = trace /\ at' = at + 1 /\ deaf' = deaf /\ user' = u /\ taken' = taken \cup {name}
  /\ event' = LET all == Traces[trace] IN IF at < Len(all) THEN all[at + 1] ELSE <<"end">>
  /\ IF user.open = {} THEN TRUE ELSE Must("a loss is told", \A n \in user.open : Now <= End(user.holds[n].ticket))
  /\ IF event'[1] = "end" THEN Must("each hold has ended", \A n \in DOMAIN u.holds : u.holds[n].done /\ u.holds[n].state = "out") /\ PrintT(<<"ACCEPTED", trace, taken'>>) ELSE TRUE
Takes(name) == TakesWith(name, user)
Waited == store' = Aged /\ UNCHANGED <<overdue, died>>   \* no request: time has passed

(************************* The answers *************************************)
\* Join 5: tokens of the trace are in the order of the specification's.
TokenFits(s, t, r) ==
  /\ Must("token in order", \A p \in seen : (p[1] < s.token[t]) = (p[2] < r) /\ (p[1] = s.token[t]) = (p[2] = r))
  /\ seen' = seen \cup {<<s.token[t], r>>}
NoToken == Same("token", 0, Token) /\ seen' = seen
\* What Join and Renew answer.
Answered(s, t) ==
  /\ Same("state", StateAt(s, t), State)
  /\ IF State = "held"
     THEN TokenFits(s, t, Token) /\ Must("token not below the floor", Token >= Floor \/ OwnerOf(t) > 0) ELSE NoToken
  /\ IF State = "gone" THEN Same("lease", 0, Lease)
     ELSE Must("lease as long as the TTL", Lease >= TTL \/ ~Fair) /\ Must("lease kept by the store", Lease <= s.left[t])
  /\ IF State = "waiting" /\ ~(Loose /\ Ahead < 0) THEN Same("ahead", AheadOf(s, t), Ahead) ELSE TRUE

Uses(t) == client' = [client EXCEPT ![Sender].mine = @ \cup {t}]
Open == Must("client is open", ~client[Sender].closed)
Served == /\ Same("error", "", Error) /\ Open
          /\ Must("nobody else's ticket", \A c \in Clients \ {Sender} : {Id, Extra} \cap client[c].mine = {})

(************************* The events **************************************)
\* Without an order, or by a request of its own, the ticket that a Join replaces may leave though the Join fails (Join 8).
Replaced(what) == IF what = "join" /\ Extra # 0 /\ (Apart \/ ~Fair) THEN {<<"leave", Extra, 0>>} ELSE {}
\* A request that was surely not carried out, or one of which the client lost its
\* connection: it arrives at once, later, twice or never, see Arrive. A renewal that
\* arrives only lets a place last longer.
Refused(what) ==
  LET unsure == Loose /\ Error = "outcome unknown" IN
  /\ What = what /\ Error # "" /\ ~(what = "break" /\ Error = "refused")
  /\ Must("refused for certain", unsure \/ Error \in {"not done", "store unavailable"} \/ client[Sender].closed)
  /\ client' = IF unsure /\ what \in {"join", "leave", "break"} THEN [client EXCEPT ![Sender].mine = IF what = "break" THEN @ ELSE @ \cup {Id}, ![Sender].unsure = @ \cup {<<what, Id, Extra>>} \cup Replaced(what)]
       ELSE IF Loose THEN [client EXCEPT ![Sender].unsure = @ \cup Replaced(what)] ELSE client
  /\ left' = IF unsure /\ what = "leave" /\ Extra = 0 THEN left \cup {Id} ELSE left
  /\ store' = IF unsure /\ what = "join" /\ Aged.left[Id] = 0 /\ ~In(store, Id) THEN [Aged EXCEPT !.left[Id] = Kept] ELSE Aged
  /\ UNCHANGED <<overdue, died>> /\ Takes("Refused") /\ seen' = seen
\* A tombstone, or a place that was dropped, keeps the ticket gone (Join 2); the
\* latter need not, and neither for ever.
Old == Forget > 0 /\ Now - died[Id] > Forget
Stays(s) == /\ ~In(s, Id)
            /\ \/ Id \in s.tombstone /\ ~(Old /\ State # "gone")
               \/ Id \in overdue \cup Lapsed(s, {}) /\ State = "gone"
Joins(name, s, replaced) ==
  LET leaves == IF Stays(s) THEN {} ELSE replaced
      marked == [s EXCEPT !.tombstone = IF Stays(s) THEN @ \cup {Id} ELSE @ \ {Id}]
      r == [Cleared(JoinAt(IF Stays(s) THEN marked ELSE Met(marked, Id), Id, leaves), Id) EXCEPT !.tombstone = s.tombstone]
  IN /\ Served /\ Must("its holds have ended", HoldsOf(replaced) = {}) /\ Must("no upgrade", Stays(s) \/ ~Upgrades(Met(marked, Id), Id))
     /\ Must("Join of a ticket that left", Id \notin left) /\ left' = left \cup leaves
     /\ Must("one ticket at a time", Given = <<>> \/ In(s, Id) \/ ~Second(Id, Given[1]))
     /\ Answered(r, Id) /\ Becomes(s, r, leaves \cup {Id}) /\ Uses(Id)
     /\ TakesWith(name, [Forgets(Learns(PlaceIn(s, r)), leaves) EXCEPT !.place = (Id :> PlaceIn(s, r)) @@ @])
Join ==
  \/ /\ What = "join" /\ Error = ""
     /\ LET s == Found(Id)
            name == IF Tries(Id) THEN (IF State = "held" THEN "TryHeld" ELSE "TryGone")
                    ELSE IF Extra # 0 THEN "TakesOver"
                    ELSE IF In(s, Id) THEN "Repeats" ELSE IF Sharers(s, Id) # {} /\ State # "gone" THEN "Shares" ELSE IF State = "gone" THEN "StaysGone" ELSE "Enters"
        IN Joins(name, s, IF Extra = 0 THEN {} ELSE {Extra})
  \/ /\ What = "join" /\ Error = "refused" /\ ~client[Sender].closed
     /\ LET s == Met(Found(Id), Id) IN
        Must("an upgrade", Upgrades(s, Id)) /\ Becomes(s, s, {}) /\ Takes("RefusesUpgrade") /\ UNCHANGED <<client, seen, left>>
  \/ What = "join" /\ (Error # "refused" \/ client[Sender].closed) /\ Refused("join")
\* Renew 1, 2 and 3: each ticket of a call is an event of its own.
Renew ==
  \/ /\ What = "renew" /\ Error = ""
     /\ LET s == Found(Id)
            r == Cleared(RenewAt(s, Id), Id)
        IN /\ Served /\ Answered(r, Id) /\ Becomes(s, r, {}) /\ Uses(Id) /\ left' = left
           /\ TakesWith(IF In(s, Id) THEN "RenewHere" ELSE "RenewGone", Learns(PlaceOf(Id)))
  \/ Refused("renew")
\* Leave 1, 2, 4 and 5; Extra is 1 where a Join may be pending. The token of the hold
\* that it ends may be left out; the stores in memory give it.
Leave ==
  \/ /\ What = "leave" /\ Error = ""
     /\ LET s == Found(Id)
            pending == Extra = 1
        IN /\ Served /\ Must("its holds have ended", HoldsOf({Id}) = {}) /\ Same("state", StateAt(s, Id), State) /\ Same("lease", 0, Lease)
           /\ IF State = "held" /\ ~(Loose /\ Token = 0) THEN TokenFits(s, Id, Token) ELSE NoToken
           /\ Becomes(s, LeaveAt(s, Id, pending), {Id}) /\ Uses(Id)
           /\ left' = IF pending THEN left ELSE left \cup {Id}
           /\ TakesWith(IF pending THEN "LeavesPending" ELSE IF State = "held" THEN "Releases"
                        ELSE IF State = "waiting" THEN "Abandons" ELSE "LeftBefore", Forgets(user, {Id}))
  \/ Refused("leave")
\* Break 1 and 3. Its id stays gone (Join 2).
BreaksOne ==
  LET s == Found(Id) IN
  /\ What = "break" /\ Error = "" /\ Open /\ Must("there is such a ticket", In(s, Id))
  /\ Becomes(s, [Remove(s, Id) EXCEPT !.tombstone = @ \cup {Id}], {})
  /\ TakesWith("BreaksOne", [user EXCEPT !.broken = @ \cup {Id}]) /\ UNCHANGED <<client, seen, left>>
BreaksNone ==
  LET s == Found(Id) IN
  /\ What = "break" /\ Error = "refused" /\ Open /\ Must("there is no such ticket", ~In(s, Id))
  /\ Becomes(s, s, {}) /\ Takes("BreaksNone") /\ UNCHANGED <<client, seen, left>>
Break == BreaksOne \/ BreaksNone \/ Refused("break")
\* Extra is the places, <<ticket, token, left>>, but for the overdue ones.
Inspect ==
  LET s == Serve(Aged)
      live == SelectSeq(s.queue, LAMBDA t : Loose \/ s.left[t] > 0)
      Near(a, b) == a - b \in -2..2   \* units are rounded
      at1(i) == Extra[i][1]
  IN \/ /\ What = "inspect" /\ Error = "" /\ Open
        /\ \/ ~Fair   \* the view of the nodes may be late
           \/ /\ Same("queue", live, [i \in 1..Len(Extra) |-> at1(i)])
              /\ Must("granted", \A i \in 1..Len(Extra) : (Extra[i][2] > 0) = (s.token[at1(i)] > 0))
              /\ Must("tokens in order", \A i \in 1..Len(Extra) : \A p \in seen :
                        Extra[i][2] > 0 => (p[1] < s.token[at1(i)]) = (p[2] < Extra[i][2]))
              /\ Must("left", Loose \/ \A i \in 1..Len(Extra) : Near(s.left[at1(i)], Extra[i][3]))
        /\ Becomes(s, s, {}) /\ Takes("Inspect") /\ UNCHANGED <<client, seen, left>>
     \/ Refused("inspect")
\* Names 1: Extra is 1 if the name is among those answered.
Names ==
  LET s == Serve(Aged) IN
  \/ /\ What = "names" /\ Error = "" /\ Open
     /\ ~Fair \/ Same("listed", s.queue # <<>>, Extra = 1)
     /\ Becomes(s, s, {}) /\ Takes("Names") /\ UNCHANGED <<client, seen, left>>
  \/ Refused("names")
\* Watch 1: a push is a past fact. Only a client that has subscribed is sent one.
PushHeld ==
  LET s == IF Fair THEN Aged ELSE Serve(Aged)
      granted == {i \in 1..Len(s.grants) : s.grants[i][1] = Id} IN
  /\ What = "push" /\ State = "held" /\ Must("the client watches", client[Sender].watches)
  /\ Must("its own ticket", Id \in client[Sender].mine) /\ Must("granted", granted # {})
  /\ LET i == CHOOSE j \in granted : \A k \in granted : k <= j IN
     TokenFits([token |-> (Id :> s.grants[i][2])], Id, Token)
  /\ Same("lease", 0, Lease)   \* Watch 2
  /\ store' = s /\ UNCHANGED <<client, left, overdue, died>> /\ Takes("PushHeld")
PushGone ==
  /\ What = "push" /\ State # "held" /\ Same("state", "gone", State)
  /\ Must("the client watches", client[Sender].watches) /\ Must("its own ticket", Id \in client[Sender].mine)
  /\ Must("it has no place", ~In(store, Id))
  /\ Waited /\ Takes("PushGone") /\ UNCHANGED <<client, seen, left>>
Push == PushHeld \/ PushGone
\* A push has reached its client, perhaps before the answer to a Join.
Heard ==
  LET n == CHOOSE m \in {p[1] : p \in {q \in seen : q[2] = Token}} : TRUE IN
  /\ What = "heard" /\ Must("its own ticket", Id \in client[Sender].mine) /\ Waited /\ UNCHANGED <<client, seen, left>>
  /\ IF State = "held" THEN TakesWith("HeardHeld", Knows(Id, {Token}, 0, IF n > PlaceOf(Id) THEN PlaceOf(Id) ELSE n - 1))
     ELSE TakesWith("HeardGone", Loses(Id, {}, Now, Now - 1))
Gap == /\ What = "gap" /\ Must("the client watches", client[Sender].watches)
       /\ Waited /\ Takes("Gap") /\ UNCHANGED <<client, seen, left>>

\* A client opens, watches and is closed. Traits 1: its answer, Extra, stays.
Traits ==
  /\ What = "traits" /\ Same("traits", 0, client[Sender].traits)
  /\ client' = [client EXCEPT ![Sender].traits = Extra] /\ Waited /\ Takes("Traits") /\ UNCHANGED <<seen, left>>
\* Watch 5: a client subscribes once, and again only where that failed; a torture may hide that it did.
Watch ==
  \/ /\ What = "watch" /\ Error = "" /\ Open /\ Must("it watches once", Loose \/ ~client[Sender].watches)
     /\ client' = [client EXCEPT ![Sender].watches = TRUE] /\ Waited /\ Takes("Watch") /\ UNCHANGED <<seen, left>>
  \/ Refused("watch")
\* Close 2: no ticket is given up.
Close ==
  /\ What = "close" /\ Same("error", "", Error)
  /\ client' = [client EXCEPT ![Sender].closed = TRUE] /\ Waited /\ Takes("Close") /\ UNCHANGED <<seen, left>>

\* The client has closed without an error, and nothing keeps a place of its.
Ended ==
  /\ What = "ended" /\ Must("its places have ended", \A t \in client[Sender].mine : ~In(store, t) \/ Aged.left[t] <= 0)
  /\ Waited /\ Takes("Ended") /\ UNCHANGED <<client, seen, left>>

\* The store's clock is set by Extra: no place lasts longer than if it were renewed now.
Step ==
  LET moved(n) == IF n + Extra > Keep THEN Keep ELSE n + Extra
      aged == Aged
      s == [aged EXCEPT !.left = [t \in Tickets |-> IF In(store, t) THEN moved(aged.left[t]) ELSE 0]]
  IN What = "step" /\ Becomes(s, s, {}) /\ Takes("Step") /\ UNCHANGED <<client, seen, left>>

Silently(name) == taken' = taken \cup {name}
Never == FALSE   \* in place of one of these actions: what is refused then needs it
\* On a server a place may be dropped, unseen, from its end on (Driver 6).
Lapse ==
  /\ Loose /\ Asks
  /\ \E t \in Queued(store) :
       /\ store.left[t] <= Passed + Took + Grain /\ Tells(t)
       /\ store' = Remove(store, t) /\ overdue' = overdue \cup {t}
  /\ Silently("Lapse") /\ UNCHANGED <<trace, at, event, client, seen, left, died, deaf, user>>

\* A request of which the client lost its connection takes effect, unseen. Its time is
\* not noted, here and in Lapse: it would make a state of each. So a place that a Join takes
\* may end as if the Join had arrived when it was sent, until an answer renews it, and a
\* tombstone counts from the trace's beginning, which matters after Forget.
Arrive ==
  /\ Loose /\ Asks
  /\ \E c \in Clients : \E u \in client[c].unsure :
       LET t == u[2]
           gone == IF In(store, t) THEN Remove(store, t) ELSE store
           joined == JoinAt(store, t, IF u[3] = 0 THEN {} ELSE {u[3]})
           r == CASE u[1] = "join" -> IF t \in left THEN store ELSE IF In(joined, t) THEN [joined EXCEPT !.left[t] = store.left[t]] ELSE joined
                  [] u[1] = "leave" -> LeaveAt(store, t, u[3] = 1)
                  [] OTHER -> [gone EXCEPT !.tombstone = @ \cup {t}]
       IN /\ <<r.queue, r.tombstone>> # <<store.queue, store.tombstone>> /\ store' = r
          /\ (Tells(t) \/ (u[1] = "join" /\ u[3] # 0 /\ Tells(u[3]))) /\ (t = Id \/ r.queue # store.queue)   \* a tombstone tells in its own requests alone
          /\ u[1] # "join" \/ u[3] # 0 \/ Stands(t)
  /\ Silently("Arrive") /\ UNCHANGED <<trace, at, event, client, seen, left, overdue, died, deaf, user>>

\* Without an order a ticket is granted when its client is told. A push may come after the grant:
\* during a request that took effect later, or when tickets with higher tokens had their turn.
Foretold ==
  /\ Loose /\ ~Fair /\ Asks
  /\ \E t \in Meanwhile :
       LET r == Called(store, t) IN
       /\ StateAt(store, t) = "waiting" /\ Fits(r) /\ store' = Grant(r, t)
  /\ Silently("Foretold") /\ UNCHANGED <<trace, at, event, client, seen, left, overdue, died, deaf, user>>

\* Where a store passes over those who do not listen, a client that may be deaf is, or not.
Hears ==
  /\ Passes /\ Asks
  /\ \E c \in Clients :
       \/ c \notin deaf /\ MayBeDeaf(c) /\ (\E t \in client[c].mine : StateAt(store, t) = "waiting") /\ deaf' = deaf \cup {c}
       \/ c \in deaf /\ deaf' = deaf \ {c}
  /\ Silently("Hears") /\ UNCHANGED <<trace, at, event, store, client, seen, left, overdue, died, user>>

(************************* What a client tells its user ********************)
\* A hold rests on what its client was told, and ends before that does. The
\* Observer says which calls return a hold.
LockDone ==
  /\ What = "lockdone" /\ Must("holds are numbered", Hold = Len(user.holds) + 1)
  /\ Waited /\ UNCHANGED <<client, seen, left>>
  /\ TakesWith("LockDone", [user EXCEPT !.holds = Append(@, [client |-> Sender, token |-> CoreToken, ticket |-> 0, since |-> Now, state |-> "said", done |-> FALSE, lost |-> FALSE])])
This == user.holds[Hold]
OfHold == /\ Must("LockDone came before", Hold \in DOMAIN user.holds /\ This.client = Sender)
          /\ Same("the token of the hold", This.token, CoreToken)
          /\ Waited /\ UNCHANGED <<client, seen, left>>
Becoming(state) == [user EXCEPT !.holds[Hold].state = state, !.open = @ \ {Hold}]
Got ==
  LET free == Id \in user.broken
      others == Others(Id) IN
  /\ What = "got" /\ OfHold /\ Same("a hold that is new", "said", This.state)
  /\ Must("a grant that the client knows", Id \in DOMAIN user.known /\ Token \in user.known[Id].tokens)
  /\ Must("its own ticket", Id \in client[Sender].mine) /\ Must("its claim lasts", Now <= End(Id))
  /\ Must("alone with its ticket", Reads(Id) \/ HoldsOf({Id}) = {}) /\ Must("an owner has one token", OwnerOf(Id) = 0 \/ Local = 0)
  /\ Must("others have ended", free \/ ( /\ Sum({t \in others : OwnerOf(t) = 0} \cup {Id}) <= Limit
                                        /\ \A t \in others : UnitsOf(t) + UnitsOf(Id) <= Limit))
  /\ Must("tokens grow", free \/ ~Excludes(Id) \/ (IF OwnerOf(Id) > 0 THEN Token >= user.last \div 256 ELSE CoreToken > user.last))
  /\ TakesWith(IF Local > 0 THEN "GotHandedOn" ELSE IF HoldsOf({Id}) # {} THEN "GotShared" ELSE "GotGranted",
       [user EXCEPT !.holds[Hold].state = "open", !.holds[Hold].ticket = Id, !.holds[Hold].since = Now, !.open = @ \cup {Hold},
                    !.last = IF Excludes(Id) THEN Max(@, CoreToken) ELSE @])
\* The user is about to unlock, and looks at Err before.
Out ==
  /\ What = "out" /\ OfHold /\ Must("a hold that was got", This.state \in {"open", "told"})
  /\ Must("a loss is told first", Error # "lost" \/ This.state = "told") /\ Must("a loss stays", Error = "lost" \/ ~This.lost)
  /\ TakesWith(IF Error = "lost" THEN "OutLost" ELSE "Out", Becoming("out"))
\* A loss may be told as the hold ends.
Told ==
  /\ What = "told" /\ OfHold /\ Must("a hold that was got", This.state \in {"open", "out"}) /\ Same("lost", "lost", Error)
  /\ Must("HoldDone tells the loss", This.lost \/ ~This.done)
  /\ TakesWith("Told", [Becoming(IF This.state = "open" THEN "told" ELSE "out") EXCEPT !.holds[Hold].lost = TRUE])
HoldDone ==
  /\ What = "holddone" /\ OfHold /\ Must("one HoldDone of a hold", ~This.done)
  /\ Must("HoldDone of a hold that has ended", Error = "lost" \/ This.state = "out")
  /\ Must("HoldDone tells the loss", Error = "lost" \/ ~This.lost)
  /\ TakesWith(IF Error = "lost" THEN "HoldDoneLost" ELSE IF Error = "" THEN "HoldDone" ELSE "HoldDoneUnsure", [user EXCEPT !.holds[Hold].done = TRUE, !.holds[Hold].lost = @ \/ Error = "lost"])
\* A call returns no hold after so many leases: not one that nobody has woken.
Failed ==
  /\ What = "failed" /\ Must("its ticket waits", Extra < Patience \/ \E t \in client[Sender].mine : StateAt(store, t) = "waiting")
  /\ Waited /\ Takes("Failed") /\ UNCHANGED <<client, seen, left>>

Next == \/ Join \/ Renew \/ Leave \/ Break \/ Inspect \/ Names
        \/ Push \/ Gap \/ Traits \/ Watch \/ Close \/ Step
        \/ LockDone \/ Got \/ Out \/ Told \/ HoldDone \/ Failed \/ Heard \/ Ended
Spec == Init /\ [][Next \/ Lapse \/ Arrive \/ Foretold \/ Hears]_vars

(************************* What must hold **********************************)
StoreLimit == HeldUnits(store) <= Limit
TryLeavesNothing == \A t \in Queued(store) : Tries(t) => store.token[t] > 0
=============================================================================
