-------------------------------- MODULE Owner -------------------------------
(***************************************************************************)
(* A hold that outlives its lock server. A client speaks to lock servers,  *)
(* these to the store. The owner at the store is the client's id, so each  *)
(* server that the client asks takes a ticket in one and the same place    *)
(* (Join 7). Servers die, are paused, come back without memory; requests   *)
(* and answers between client and server are lost, late and repeated. A    *)
(* stranger wants the lock.                                                *)
(*                                                                         *)
(* A server that was restarted is another process: it knows nothing, and   *)
(* its ticket is a new one. Servers are such processes, and the last one   *)
(* starts when the first has died. A pause is a server that takes no step. *)
(*                                                                         *)
(* A client holds several times, one hold after the other, each with an id *)
(* of its own. The next one begins here when nothing of the last one is    *)
(* left but late requests: a place of that one would be as a stranger's.   *)
(*                                                                         *)
(* An answer to a client that waits says how long its place is kept. An    *)
(* event tells of the grant, at once or never, and moves no claim: the     *)
(* client believes that of the server that answered last, no other's.      *)
(* A release breaks the tickets of other servers, then leaves with its own *)
(* and looks again: another server may have shared the place meanwhile.    *)
(*                                                                         *)
(* Assumed: a request at the store is one step; module Line has its losses *)
(* and clocks that drift; here all clocks tick together; Margin and Keep >  *)
(* Lease stand for the margins of both ways. The stranger lives and renews.*)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Servers,    \* processes of lock servers, as numbers from 1
  Restarted,  \* those that run only when server 1 has died
  Lease,      \* ticks that the claim of a server's ticket lasts
  Margin,     \* ticks the client takes off, so that its claim ends before the server's
  Keep,       \* ticks the store keeps a ticket, counted from handling
  Grants,     \* how often the store grants at most, which bounds the tokens
  Crashes,    \* how many servers die
  Late,       \* requests of the client under way at once that it gave up
  Holds,      \* holds of the client, one after the other
  Events,     \* TRUE: servers send events
  Reached,    \* TRUE: the client reaches some server before its claim ends
  Bug

ASSUME Lease > Margin /\ Restarted \subseteq Servers /\ {Events, Reached} \subseteq BOOLEAN

VARIABLES
  store,   \* the queue of "own" and "str", their tokens, the owner's tickets
  server,  \* what each server knows of the hold, and the request it handles
  client,  \* what the client believes
  late,    \* <<server, kind, token, id>>: may arrive, and again
  world    \* how many servers have died, and the id of the client's hold

vars == <<store, server, client, late, world>>

Flaw(name) == Bug = name
Less(a) == IF a > 0 THEN a - 1 ELSE 0
Max(a, b) == IF a > b THEN a ELSE b

\* pc: the step that is next, where a request takes several. d: the claim of this
\* server's ticket. lag: ticks from the client's sending to the begin of its
\* request here. given: a grant was sent to the client.
Blank == [up |-> TRUE, pc |-> "idle", kind |-> "none", want |-> 0, mine |-> FALSE,
          lag |-> 0, d |-> 0, given |-> FALSE]
Nobody == [state |-> "new", until |-> 0, token |-> 0, call |-> "none", at |-> 0, age |-> 0,
           answer |-> "none", left |-> 0, got |-> 0, home |-> 0, moved |-> FALSE]

Over == [Nobody EXCEPT !.state = "over"]

Init == /\ store = [queue |-> <<>>, token |-> [o \in {"own", "str"} |-> 0], left |-> [s \in Servers |-> 0],
                    tickets |-> {}, last |-> 0]
        /\ server = [s \in Servers |-> [Blank EXCEPT !.up = s \notin Restarted]]
        /\ client = Nobody /\ late = {} /\ world = [crashed |-> 0, id |-> 1]

(************************* The store ***************************************)

Held(o) == store.token[o] > 0
Grant(st) == LET o == st.queue[IF Flaw("two-holders") THEN Len(st.queue) ELSE 1] IN
             IF st.queue # <<>> /\ st.token[o] = 0 THEN [st EXCEPT !.token[o] = st.last + 1, !.last = @ + 1] ELSE st
CanEnter == store.last + Cardinality({i \in 1..Len(store.queue) : ~Held(store.queue[i])}) < Grants
Enter(st, o) == Grant([st EXCEPT !.queue = Append(@, o)])
Vacate(st, o) == Grant([st EXCEPT !.queue = SelectSeq(@, LAMBDA p : p # o), !.token[o] = 0])

\* Join 7: a server's ticket shares the place of its owner, token and all.
JoinOwn(s) == LET st == [store EXCEPT !.tickets = @ \cup {s}, !.left[s] = Keep] IN
              IF store.tickets = {} \/ (Flaw("owner-queues") /\ ~Held("own")) THEN Enter(st, "own") ELSE st
\* The place stays until the last ticket of its owner is gone.
LeaveOwn(st, S) ==
  LET rest == IF Flaw("owner-leaves") /\ S # {} THEN {} ELSE st.tickets \ S
      st1 == [st EXCEPT !.tickets = rest, !.left = [s \in Servers |-> IF s \in rest THEN @[s] ELSE 0]]
  IN IF st.tickets # {} /\ rest = {} THEN Vacate(st1, "own") ELSE st1
StateOwn(st) == IF st.tickets = {} THEN "gone" ELSE IF st.token["own"] > 0 THEN "held" ELSE "waiting"

Stranger == /\ UNCHANGED <<server, client, late, world>>
            /\ \/ (\A i \in 1..Len(store.queue) : store.queue[i] # "str") /\ CanEnter /\ store' = Enter(store, "str")
               \/ Held("str") /\ store' = Vacate(store, "str")
\* A ticket whose time is over is dropped, now or later (Driver 6).
Expire == \E s \in store.tickets :
  /\ store.left[s] = 0 /\ store' = LeaveOwn(store, {s} \cup (IF Flaw("owner-dies") THEN store.tickets ELSE {}))
  /\ UNCHANGED <<server, client, late, world>>

(************************* The client **************************************)

Call(s, kind) == [client EXCEPT !.call = kind, !.at = s, !.age = Lease, !.answer = "none"]
\* Acquire, at any server, again and again by the same id.
Acquire(s) == /\ client.state \in {"new", "asking"} /\ client.call = "none"
              /\ client' = [Call(s, "acquire") EXCEPT !.state = "asking", !.moved = @ \/ client.home \notin {0, s}]
              /\ UNCHANGED <<store, server, late, world>>
\* Renew at the server that answered last; elsewhere acquire, to resume the hold.
Renew(s) == /\ client.state = "held" /\ client.call = "none" /\ 0 < client.until /\ client.until < Lease - Margin
            /\ client' = [Call(s, IF s = client.home THEN "renew" ELSE "resume") EXCEPT !.moved = @ \/ client.home # s]
            /\ UNCHANGED <<store, server, late, world>>
\* No answer in time: the request may still be carried out, and again.
GiveUp == /\ client.call # "none"
          /\ client' = IF client.state = "over" THEN Over
                       ELSE [client EXCEPT !.call = "none", !.at = 0, !.age = 0, !.answer = "none", !.left = 0, !.got = 0, !.moved = TRUE]
          /\ \/ late' = late
             \/ Cardinality(late) < Late /\ late' = late \cup {<<client.at, client.call, client.token, world.id>>}
          /\ UNCHANGED <<store, server, world>>

\* The claim counts from before the request was sent; a loss is final.
Hear == LET c == client
            rest == [c EXCEPT !.call = "none", !.at = 0, !.age = 0, !.answer = "none", !.left = 0, !.got = 0, !.home = c.at]
        IN /\ c.call # "none" /\ c.answer # "none" /\ UNCHANGED <<store, server, late, world>>
           /\ client' = CASE c.state = "over" -> Over
                          [] Events /\ c.answer = "waiting" /\ c.state = "asking" -> [rest EXCEPT !.until = Max(@, c.left)]
                          [] c.answer = "held" /\ c.left > 0 /\ (c.state = "asking" \/ c.until > 0) ->
                               [rest EXCEPT !.state = "held", !.until = Max(@, c.left),
                                            !.token = IF c.state = "asking" THEN c.got ELSE @]
                          [] c.answer = "gone" /\ c.state = "held" -> Over
                          [] c.answer = "unknown" -> [rest EXCEPT !.home = 0]
                          [] OTHER -> rest
\* An event about the grant: the claim is that of the place.
Event(s) == /\ Events /\ client.state = "asking" /\ client.until > 0 /\ (client.home = s \/ Flaw("event-elsewhere") \/ Flaw("leaves-first"))
            /\ server[s].up /\ server[s].d > 0 /\ s \in store.tickets /\ Held("own")
            /\ client' = [client EXCEPT !.state = "held", !.token = store.token["own"],
                                        !.until = IF Flaw("event-extends") THEN Lease - Margin ELSE @]
            /\ server' = [server EXCEPT ![s].given = TRUE, ![s].d = IF Flaw("older-ticket") THEN 1 ELSE @] /\ UNCHANGED <<store, late, world>>
Lose == /\ client.state = "held" /\ client.until = 0
        /\ client' = (IF client.call = "none" THEN Over ELSE [client EXCEPT !.state = "over"]) /\ UNCHANGED <<store, server, late, world>>
\* Release: the belief ends first.
Release(s) == /\ client.state = "held" /\ client.call = "none"
              /\ client' = [Over EXCEPT !.moved = client.moved \/ client.home # s, !.call = "release", !.at = s]
              /\ UNCHANGED <<store, server, late, world>>

\* The next hold, with a fresh id.
Again == /\ client.state = "over" /\ client.call = "none" /\ world.id < Holds /\ store.tickets = {}
         /\ \A s \in Servers : server[s].up => server[s].pc = "idle" /\ server[s].d = 0
         /\ client' = Nobody /\ world' = [world EXCEPT !.id = @ + 1] /\ UNCHANGED <<store, server, late>>

(************************* A lock server ***********************************)

\* The answer says what is left of this server's claim, counted at the begin of
\* the request: the client counts it from its own sending.
Says(r, s, what, d, token) ==
  client' = IF r.mine /\ client.call = r.kind /\ client.at = s /\ client.answer = "none"
            THEN [client EXCEPT !.answer = what, !.got = token,
                  !.left = LET off == Margin + (IF Flaw("from-answer") THEN 0 ELSE r.lag)
                           IN IF d > off THEN d - off ELSE 0]
            ELSE client
Idle(r) == [r EXCEPT !.pc = "idle", !.kind = "none", !.want = 0, !.mine = FALSE, !.lag = 0]
Now(s, r) == server' = [server EXCEPT ![s] = r]

\* Owner check: Inspect comes first, because a question must not take the lock.
Look(s, r) ==
  /\ store' = store
  /\ IF Held("own") /\ store.token["own"] = r.want
     THEN Now(s, [r EXCEPT !.pc = "join"]) /\ client' = client
     ELSE Now(s, [Idle(r) EXCEPT !.d = 0, !.given = FALSE]) /\ Says(r, s, "gone", 0, 0)

\* Join or Renew of this server's ticket. One that was gone gets an owner check;
\* with wait=false nothing is left behind (Join 4).
Ask(s, r) ==
  LET join == r.pc = "join"
      st == IF join THEN JoinOwn(s) ELSE IF s \in store.tickets THEN [store EXCEPT !.left[s] = Keep] ELSE store
      state == IF s \in st.tickets THEN StateOwn(st) ELSE "gone"
      token == st.token["own"]
      mismatch == r.kind # "acquire" /\ state = "held" /\ r.want # token /\ ~Flaw("no-compare") /\ ~Flaw("resume-blind")
      next == [r EXCEPT !.d = Lease]
  IN /\ join /\ store.tickets = {} => CanEnter
     /\ IF r.kind # "acquire" /\ state = "waiting"
        THEN store' = LeaveOwn(st, {s}) /\ Now(s, [Idle(r) EXCEPT !.d = 0, !.given = FALSE]) /\ Says(r, s, "gone", 0, 0)
        ELSE /\ store' = st
             /\ CASE mismatch -> Now(s, [next EXCEPT !.pc = "undo"]) /\ client' = client
                  [] state = "gone" -> Now(s, [r EXCEPT !.pc = "look", !.d = 0, !.given = FALSE]) /\ client' = client
                  [] Flaw("break-on-takeover") /\ r.kind = "resume" -> Now(s, [next EXCEPT !.pc = "break"]) /\ client' = client
                  [] OTHER -> /\ Now(s, [Idle(next) EXCEPT !.given = @ \/ (state = "held" /\ r.mine)])
                              /\ Says(r, s, state, Lease, token)

\* Leave 2: its own ticket only; after a move the owner's other tickets, too: those first,
\* and what another server has shared in between last.
Leave(s, r) ==
  LET moved == r.mine /\ client.moved /\ ~Flaw("releases-here-only")
      next == [r EXCEPT !.d = 0, !.given = FALSE]
      done == /\ Now(s, Idle(next)) /\ client' = (IF r.mine THEN Over ELSE client)
  IN CASE r.pc = "idle" /\ moved -> store' = LeaveOwn(store, store.tickets \ {s}) /\ Now(s, [r EXCEPT !.pc = "leave"]) /\ client' = client
       [] r.pc = "leave" /\ ~Flaw("releases-once") -> store' = LeaveOwn(store, {s}) /\ Now(s, [next EXCEPT !.pc = "again"]) /\ client' = client
       [] r.pc = "again" -> store' = LeaveOwn(store, store.tickets) /\ done
       [] OTHER -> store' = LeaveOwn(store, {s}) /\ done

\* A request is taken on: the client's, or one that it gave up. A late one with the id of
\* an earlier hold finds nothing of it, and changes nothing.
OfThisHold == {l \in late : l[4] = world.id \/ Flaw("id-again")}
Begin(s) ==
  \E q \in {<<s, client.call, client.token, TRUE>>} \cup {<<l[1], l[2], l[3], FALSE>> : l \in OfThisHold} :
    LET r == [server[s] EXCEPT !.kind = q[2], !.want = q[3], !.mine = q[4], !.lag = IF q[4] THEN Lease - client.age ELSE 0]
    IN /\ r.up /\ r.pc = "idle" /\ q[1] = s /\ UNCHANGED <<late, world>>
       /\ q[4] => client.at = s /\ client.answer = "none"
       /\ CASE q[2] = "acquire" -> Ask(s, [r EXCEPT !.pc = "join"])
            [] q[2] = "resume" /\ Flaw("leaves-first") /\ s \in store.tickets /\ ~r.given ->
                 store' = LeaveOwn(store, {s}) /\ Now(s, [r EXCEPT !.pc = "look", !.d = 0]) /\ client' = client
            [] q[2] = "resume" -> IF Flaw("resume-blind") THEN Ask(s, [r EXCEPT !.pc = "join"]) ELSE Look(s, r)
            [] q[2] = "renew" -> IF r.d > 0 THEN Ask(s, r) ELSE Says(r, s, "unknown", 0, 0) /\ UNCHANGED <<store, server>>
            [] q[2] = "release" -> Leave(s, r)
            [] OTHER -> FALSE
Step(s) == /\ UNCHANGED <<late, world>>
           /\ \/ server[s].pc = "look" /\ Look(s, server[s])
              \/ server[s].pc = "join" /\ Ask(s, server[s])
              \/ server[s].pc \in {"leave", "again"} /\ Leave(s, server[s])
              \/ /\ server[s].pc = "break" /\ store' = LeaveOwn(store, store.tickets \ {s})   \* a flaw only
                 /\ Now(s, Idle(server[s])) /\ Says(server[s], s, "held", server[s].d, store.token["own"])
\* The place is a new one: nobody's claim. What was taken by asking is left.
Undo(s) == /\ server[s].pc = "undo" /\ store' = LeaveOwn(store, {s})
           /\ server' = [server EXCEPT ![s] = [Idle(@) EXCEPT !.d = 0, !.given = FALSE]]
           /\ Says(server[s], s, "gone", 0, 0) /\ UNCHANGED <<late, world>>
\* No renewal without a request: when its claim is over, a server lets go.
LetGo(s) == /\ server[s].up /\ server[s].pc = "idle" /\ server[s].d = 0 /\ s \in store.tickets
            /\ store' = LeaveOwn(store, {s}) /\ server' = [server EXCEPT ![s].given = FALSE]
            /\ UNCHANGED <<client, late, world>>
\* A grant of which nothing was sent to the client is given back sooner.
GiveBack(s) == /\ server[s].up /\ server[s].pc = "idle" /\ server[s].d > 0 /\ s \in store.tickets
               /\ ~server[s].given \/ Flaw("give-back-sent")
               /\ store' = LeaveOwn(store, {s}) /\ server' = [server EXCEPT ![s].d = 0, ![s].given = FALSE]
               /\ UNCHANGED <<client, late, world>>

Crash(s) == /\ server[s].up /\ world.crashed < Crashes /\ world' = [world EXCEPT !.crashed = @ + 1]
            /\ server' = [t \in Servers |-> IF t = s THEN [Blank EXCEPT !.up = FALSE]
                          ELSE IF s = 1 /\ t \in Restarted THEN Blank ELSE server[t]]
            /\ UNCHANGED <<store, client, late>>

Tick == /\ client.state = "held" => client.until > (IF Reached THEN 1 ELSE 0)
        /\ store' = [store EXCEPT !.left = [s \in Servers |-> Less(@[s])]]
        /\ server' = [s \in Servers |-> [server[s] EXCEPT !.d = Less(@)]]
        /\ client' = [client EXCEPT !.until = Less(@), !.age = Less(@), !.left = IF Flaw("from-answer") THEN @ ELSE Less(@)]
        /\ vars # <<store', server', client', late, world>> /\ UNCHANGED <<late, world>>

Next == \/ \E s \in Servers : Acquire(s) \/ Renew(s) \/ Event(s) \/ Release(s) \/ Begin(s) \/ Step(s)
                             \/ Undo(s) \/ LetGo(s) \/ GiveBack(s) \/ Crash(s)
        \/ GiveUp \/ Hear \/ Lose \/ Again \/ Stranger \/ Expire \/ Tick
Spec == Init /\ [][Next]_vars

(************************* What must hold **********************************)

\* The loss of a hold is told before the stranger is granted.
ToldFirst == client.state = "held" => ~Held("str")
\* One token is one place without interruption, whatever server answers for it.
SameToken == client.state = "held" => store.token["own"] = client.token
AnswersAgree == client.call \in {"renew", "resume"} /\ client.answer = "held" => client.got = client.token
OnePlace == \A i, j \in 1..Len(store.queue) : store.queue[i] = store.queue[j] => i = j
OneHold == ~(Held("own") /\ Held("str"))
\* A release that is answered leaves nothing of its owner at the store, whichever servers had tickets.
Freed == [][\A s \in Servers : ((Begin(s) \/ Step(s)) /\ client.call = "release" /\ client'.call = "none") => store'.tickets = {}]_vars
\* Where the client reaches a server in time, its hold is never lost.
NeverLost == Reached /\ client.state = "held" => client.answer # "gone"

\* The queue of module LineAbs: whichever servers hold the tickets of the owner, it has one place.
Abs == INSTANCE LineAbs WITH
  Tickets <- {"own", "str"}, Writers <- {}, Limit <- 1, Numbers <- Nat, line <- store.queue, token <- store.token,
  last <- store.last, uses <- [own |-> IF client.state = "held" THEN client.token ELSE 0, str |-> 0], over <- {}
Refines == Abs!Spec
=============================================================================
