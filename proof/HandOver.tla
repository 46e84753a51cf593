------------------------------ MODULE HandOver ------------------------------
(***************************************************************************)
(* The hand-off between the goroutines of one client. They share one queue *)
(* (queue.go), which has at most one pending ticket at the store; one of   *)
(* them, the joiner, sends its Join. A ticket that is held passes from one *)
(* goroutine to the next without a request.                                *)
(*                                                                         *)
(* Each action is one critical section of queue.mu, and has the name of    *)
(* the Go function that locks it; module LocalQueue has the functions that *)
(* are called in it. Between two sections anything else may happen. The    *)
(* requests of module Line are one step at the store here, with answers    *)
(* that may be lost. Clocks are module Line's matter: a claim is valid or  *)
(* over, and the store keeps a place as long as it is valid.               *)
(*                                                                         *)
(* Not here: Close, Detach, MaxHold and nested holds, named owners, and    *)
(* the times of pauses and of retry budgets: each may end now or later.    *)
(***************************************************************************)
EXTENDS LocalQueue

(************************* Sections of acquire, join and giveUp ************)

Section(c, q) == Becomes(store, c, q, world) /\ UNCHANGED late
Ask(g) ==
  LET q == queue[ClientOf(g)]
      i == q.open
      fresh == i # 0 /\ q.waiters = <<>> /\ (q.t[i].hand < MaxHand \/ Flaw("lets-in-for-ever")) /\ (q.t[i].valid \/ Flaw("open-kept"))
      in == [q EXCEPT !.t[i].hand = @ + 1, !.t[i].users = Append(@, g), !.g[g].ticket = i]
  IN /\ q.g[g].pc = "new"
     /\ Section(ClientOf(g),
          IF fresh THEN Ends(in, g, "holds")   \* admitReader
          ELSE IF g \in Trying /\ TryBlocked(q) THEN Ends(q, g, "over")
          ELSE Loop(EnsureJoiner([q EXCEPT !.waiters = Append(@, g)]), g))
Acquire(g) ==
  LET q == queue[ClientOf(g)] IN
  /\ q.g[g].pc = "asleep" /\ q.g[g].wake = "full"
  /\ Section(ClientOf(g), Loop([q EXCEPT !.g[g].wake = "empty"], g))
Cancel(g) ==
  LET q == queue[ClientOf(g)] IN
  /\ g \in Impatient /\ ~q.g[g].cancelled /\ q.g[g].pc \in {"asleep", "joins", "sent", "answered"}
  /\ Section(ClientOf(g), [q EXCEPT !.g[g].cancelled = TRUE])

\* dropHold: the queue without g's hold, and the ticket that leaves, or 0.
DropHold(q, g, slow) ==
  LET i == q.g[g].ticket
      r == [q EXCEPT !.t[i].users = Without(@, g)]
      next == Head(r.waiters)
      local == r.waiters # <<>> /\ next \notin Trying /\ ~Readers(r) /\ (r.t[i].valid \/ Flaw("hands-on-lapsed"))
      again == [NewTicket(RetireHeld(r, i)) EXCEPT !.t[r.next].replaces = i]
  IN IF q.t[i].state # "held" THEN <<q, 0>>
     ELSE IF r.t[i].users # <<>> /\ ~Flaw("first-reader-frees") THEN <<r, 0>>
     ELSE IF local /\ (r.t[i].hand < MaxHand \/ Flaw("hands-on-for-ever")) /\ ~slow
          THEN <<GrantTo(IF Flaw("same-token") THEN r ELSE [r EXCEPT !.t[i].hand = @ + 1], i, next), 0>>
     ELSE IF local /\ Exclusive(r) /\ (~r.t[i].pending \/ Flaw("pending-replaced")) /\ r.pending = 0 THEN <<AppointJoiner(again, next), 0>>
     ELSE <<EnsureJoiner(RetireHeld(r, i)), i>>
GiveUpWait(g) ==
  LET q == queue[ClientOf(g)]
      i == q.g[g].ticket
      r == RemoveWaiter([q EXCEPT !.g[g].err = TRUE], g)
  IN /\ q.g[g].pc = "asleep" /\ q.g[g].cancelled
     /\ \E slow \in {FALSE, Slow} :
          LET d == DropHold(q, g, slow)
              dropped == IF d[2] = 0 THEN d[1] ELSE [d[1] EXCEPT !.cleaner = @ \cup {<<i, q.t[i].pending>>}]
          IN Section(ClientOf(g), Ends(
               IF i # 0 THEN (IF Flaw("late-grant-kept") THEN q ELSE dropped)
               ELSE IF q.g[g].err THEN q
               ELSE IF (r.joiner = g \/ r.waiters = <<>>) /\ ~Flaw("leaver-joins") THEN PassJoiner(r) ELSE r, g, "over"))

\* join: its first section, the Join at the store, and the section of its reply.
Join(g) ==
  LET q == queue[ClientOf(g)] IN
  /\ q.g[g].pc = "joins"
  /\ Section(ClientOf(g), IF q.pending = 0 THEN [q EXCEPT !.g[g].pc = "crashed"]
                          ELSE [q EXCEPT !.g[g].pc = "sent", !.g[g].call = q.pending, !.t[q.pending].sent = TRUE])
\* awaitJoinAllowed: the context ended in the pause before a repetition.
JoinNotAllowed(g) ==
  LET q == queue[ClientOf(g)] IN
  q.g[g].pc = "joins" /\ q.g[g].cancelled /\ Section(ClientOf(g), AfterJoin(q, g))
StoreJoins(g) ==
  LET c == ClientOf(g)
      q == queue[c]
      x == <<c, q.g[g].call>>
      s == JoinAt(store, x, g \in Trying, q.t[x[2]].replaces)
  IN /\ q.g[g].pc = "sent"
     /\ Becomes(s, c, [q EXCEPT !.g[g].pc = "answered", !.g[g].answer = StateAt(s, x),
                                !.t[x[2]].token = s.token[x], !.t[x[2]].valid = Has(s.line, x)], world)
     /\ UNCHANGED late

ForgetPlace(q, i) == IF q.t[i].pending THEN Gone(Clean(q, i), i) ELSE Gone(q, i)
OnPlaceLost(q, i) == LET r == ForgetPlace(q, i) IN IF q.pending = i THEN EnsureJoiner(ClearPending(r)) ELSE r
OnJoinReply(g) ==
  LET q == queue[ClientOf(g)]
      i == q.g[g].call
      pushed == q.t[i].early > 0 /\ q.g[g].answer = "waiting"
      says == IF pushed THEN "held" ELSE q.g[g].answer
      doubtful == ~q.t[i].valid \/ Flaw("grants-doubted") \/ (q.g[g].answer = "waiting" /\ q.t[i].pending /\ q.t[i].lapsed /\ ~Flaw("doubtful-trusted"))
      waits == FailTries([q EXCEPT !.t[i].state = "waiting", !.joiner = 0])
  IN /\ q.g[g].pc = "answered"
     /\ Section(ClientOf(g), AfterJoin(
          IF says = "gone" /\ g \in Trying THEN EnsureJoiner(FailTries(ForgetPlace(ClearPending(q), i)))
          ELSE IF says = "gone" THEN NewTicket(ForgetPlace(q, i))
          ELSE IF doubtful THEN NewTicket(Gone(Clean(q, i), i))   \* endDoubtful
          ELSE IF says = "held" THEN OnGrant(q, i, IF pushed THEN q.t[i].early ELSE q.t[i].token)
          ELSE IF waits.waiters = <<>> THEN AbandonPending(waits) ELSE waits, g))
DropLapsed(q, i) == IF q.pending = i THEN EnsureJoiner(AbandonPending(q)) ELSE q
\* The answer is lost; the request has taken effect, or does later, or never.
OnJoinError(g) ==
  LET c == ClientOf(g)
      q == queue[c]
      i == q.g[g].call
      r == [q EXCEPT !.t[i].pending = TRUE, !.t[i].valid = FALSE, !.t[i].token = 0]
  IN /\ q.g[g].pc \in {"sent", "answered"} /\ (world.losses < Losses \/ q.g[g].cancelled)
     /\ \E next \in {r, IF Silences > 0 THEN DropLapsed(r, i) ELSE r, EnsureJoiner(FailWait(AbandonPending(r), g))} :   \* mayRetryJoin, or not
          Becomes(store, c, AfterJoin(next, g), IF q.g[g].cancelled THEN world ELSE [world EXCEPT !.losses = @ + 1])
     /\ late' = late \/ (q.g[g].pc = "sent" /\ late' = late \cup {<<c, i, g \in Trying, q.t[i].replaces>>})
OnJoinRefused(g) ==
  LET c == ClientOf(g)
      q == queue[c]
      i == q.g[g].call
      r == Gone(CleanReplaced(ClearPending(q), i), i)
  IN /\ q.g[g].pc = "sent" /\ world.losses < Losses /\ ~q.t[i].pending
     /\ Becomes(store, c, AfterJoin(EnsureJoiner(FailWait(r, g)), g), [world EXCEPT !.losses = @ + 1])
     /\ UNCHANGED late
\* The store is silent: a wait without a place fails, though another goroutine joins.
EndOverBudget(g) ==
  LET q == queue[ClientOf(g)] IN
  /\ Losses > 0 /\ Has(q.waiters, g) /\ q.joiner # g
  /\ q.pending # 0 => q.t[q.pending].state # "waiting"
  /\ ~(Exclusive(q) /\ HeldCount(q) > 0)
  /\ Section(ClientOf(g), FailWait(q, g))

(************************* Sections of Unlock and of losses *****************)

\* endNested: what nobody takes over leaves at the store (ticket.leave), or else by the cleaner.
Unlock(g) ==
  LET q == queue[ClientOf(g)]
      i == q.g[g].ticket
  IN /\ q.g[g].pc = "holds"
     /\ \E slow \in {FALSE, Slow} :
          LET d == DropHold(q, g, slow) IN
          Section(ClientOf(g), IF d[2] = 0 THEN Ends(d[1], g, "over")
                               ELSE [d[1] EXCEPT !.g[g].pc = "leaves", !.g[g].pending = q.t[i].pending])
LeaveStore(g) ==
  LET c == ClientOf(g)
      q == queue[c]
      x == <<c, q.g[g].ticket>>
      s == LeaveAt(store, x, q.g[g].pending)
      clean == [q EXCEPT !.cleaner = @ \cup {<<x[2], q.g[g].pending>>}]
  IN /\ q.g[g].pc = "leaves" /\ UNCHANGED late
     /\ \/ Becomes(s, c, Ends(q, g, "over"), world)
        \/ /\ world.losses < Losses
           /\ \E s2 \in {store, s} : Becomes(s2, c, Ends(clean, g, "over"), [world EXCEPT !.losses = @ + 1])
CleanerLeaves(c) == \E e \in queue[c].cleaner :
  Becomes(LeaveAt(store, <<c, e[1]>>, e[2]), c, [queue[c] EXCEPT !.cleaner = @ \ {e}], world) /\ UNCHANGED late

\* Holds end, and goroutines that have not seen their grant are woken, before the queue moves on.
RECURSIVE EndUsers(_, _)
EndUsers(q, users) ==
  IF users = <<>> THEN q
  ELSE LET g == Head(users) IN EndUsers(IF q.g[g].pc = "holds" THEN Ends(q, g, "over") ELSE WakeUp(q, g), Tail(users))
LoseHeld(q, i, gone) ==
  LET r == RetireHeld(IF gone /\ ~q.t[i].pending THEN q ELSE Clean(q, i), i)
  IN [EndUsers(r, q.t[i].users) EXCEPT !.losing = @ + 1]
Expires(c) == \E i \in 1..Refs :
  queue[c].t[i].state = "held" /\ ~queue[c].t[i].valid /\ Section(c, LoseHeld(queue[c], i, FALSE))
LoseHeldEnds(c) ==
  LET q == [queue[c] EXCEPT !.losing = @ - 1] IN
  queue[c].losing > 0 /\ Section(c, IF Flaw("loss-moves-nobody") THEN q ELSE EnsureJoiner(q))

(************************* Sections of renewals and pushes ******************)

OnRenewReply(c) == \E i \in 1..Refs :
  LET q == queue[c]
      x == <<c, i>>
      r == [q EXCEPT !.t[i].valid = TRUE]
      says == StateAt(store, x)
      other == q.t[i].state = "held" /\ store.token[x] # q.t[i].token /\ ~Flaw("token-not-compared")
  IN /\ q.t[i].state \in {"waiting", "held"}
     /\ \/ says = "gone" /\ Section(c, IF q.t[i].state = "held" THEN LoseHeld(q, i, TRUE) ELSE OnPlaceLost(q, i))
        \/ says = "held" /\ ~other /\ Section(c, IF q.t[i].state = "waiting" THEN OnGrant(r, i, store.token[x]) ELSE r)
        \/ says = "waiting" /\ ~other /\ Section(c, r)
        \/ says # "gone" /\ other /\ Section(c, LoseHeld(q, i, FALSE))   \* a state without this grant
        \/ q.t[i].state = "waiting" /\ ~q.t[i].valid /\ Section(c, DropLapsed(q, i))   \* no answer
OnPush(c) == \E n \in news :
  LET q == queue[c]
      i == n[2]
  IN /\ n[1] = c
     /\ \/ q.t[i].state = "new" /\ q.joiner \notin Trying /\ q.t[i].early # n[4] /\ Section(c, [q EXCEPT !.t[i].early = n[4]])
        \/ /\ q.t[i].state = "waiting" /\ q.t[i].valid
           /\ ~(q.t[i].pending /\ q.t[i].lapsed) \/ Flaw("stale-push-trusted")   \* stalePush: it renews instead
           /\ Section(c, OnGrant(q, i, n[4]))

(************************* The world ***************************************)

\* A claim ends, or an answer to Join is older than its lease.
ClaimEnds(c) == \E i \in 1..Refs :
  /\ world.silences < Silences /\ queue[c].t[i].valid
  /\ Becomes(store, c, [queue[c] EXCEPT !.t[i].valid = FALSE], [world EXCEPT !.silences = @ + 1]) /\ UNCHANGED late
StoreExpires(c) == \E i \in 1..Refs :
  /\ Has(store.line, <<c, i>>) /\ ~queue[c].t[i].valid
  /\ Becomes(Remove(store, <<c, i>>), c, IF Live(queue[c], i) THEN [queue[c] EXCEPT !.t[i].lapsed = TRUE] ELSE queue[c], world)
  /\ UNCHANGED late
LateJoin(c) == \E x \in late :
  /\ x[1] = c /\ late' = late \ {x}
  /\ Becomes(JoinAt(store, <<c, x[2]>>, x[3], x[4]), c, queue[c], world)

Next == \/ \E g \in Goroutines : Ask(g) \/ Acquire(g) \/ Cancel(g) \/ GiveUpWait(g) \/ Join(g) \/ JoinNotAllowed(g)
             \/ StoreJoins(g) \/ OnJoinReply(g) \/ OnJoinError(g) \/ OnJoinRefused(g) \/ EndOverBudget(g)
             \/ Unlock(g) \/ LeaveStore(g)
        \/ \E c \in Clients : CleanerLeaves(c) \/ Expires(c) \/ LoseHeldEnds(c) \/ OnRenewReply(c) \/ OnPush(c)
             \/ ClaimEnds(c) \/ StoreExpires(c) \/ LateJoin(c)
Spec == Init /\ [][Next]_vars

(************************* What must hold **********************************)

Q(g) == queue[ClientOf(g)]
At(g) == Q(g).g[g]
Sends(g) == At(g).pc \in {"joins", "sent", "answered"}
OneJoiner == \A c \in Clients : LET S == {g \in Of(c) : Sends(g)} IN
  Cardinality(S) <= 1 /\ (queue[c].joining <=> S # {})
\* Driver 8: no other request about a ticket whose Join is under way; the queue still wants it.
JoinsItsOwn == \A g \in Goroutines : At(g).call # 0 =>
  At(g).call = Q(g).pending /\ \A e \in Q(g).cleaner : e[1] # At(g).call
NobodyCrashes == \A g \in Goroutines : At(g).pc # "crashed"
\* A queue that waits has somebody who joins, a place at the store, or a hold to take over.
WaitersHaveTurn == \A c \in Clients : LET q == queue[c] IN q.waiters # <<>> =>
  \/ q.pending # 0 /\ (q.t[q.pending].state = "waiting" \/ q.joining \/ (q.joiner # 0 /\ Has(q.waiters, q.joiner)))
  \/ Exclusive(q) /\ HeldCount(q) > 0
  \/ q.losing > 0
NobodySleepsOn == \A g \in Goroutines : LET a == At(g) IN
  a.pc = "asleep" /\ ~a.cancelled /\ (a.ticket # 0 \/ a.err \/ Q(g).joiner = g) => a.wake = "full"
\* A held ticket is some goroutine's, and but for readers no more than one's.
HeldIsUsed == \A c \in Clients : \A i \in 1..Refs : LET q == queue[c] IN
  q.t[i].state = "held" => q.t[i].users # <<>> /\ (Readers(q) \/ Len(q.t[i].users) = 1)
UsersKnow == \A c \in Clients : \A i \in 1..Refs : \A n \in 1..Len(queue[c].t[i].users) :
  LET a == queue[c].g[queue[c].t[i].users[n]] IN a.ticket = i /\ a.pc \notin {"new", "over", "leaves"}
HoldsAreHeld == \A g \in Goroutines : At(g).pc = "holds" => Q(g).t[At(g).ticket].state = "held"
Believed == {<<ClientOf(g), At(g).ticket>> : g \in {h \in Goroutines : At(h).pc = "holds" /\ Q(h).t[At(h).ticket].valid}}
Exclusion == \A x \in Believed : store.token[x] > 0 /\ store.token[x] = queue[x[1]].t[x[2]].token
Grow == ~world.back
Bounded == \A c \in Clients : \A i \in 1..Refs : queue[c].t[i].hand <= MaxHand
\* What is at the store is renewed, or leaves: nothing else keeps a place.
Residue == \A n \in 1..Len(store.line) : LET q == queue[store.line[n][1]]
                                              i == store.line[n][2] IN
  \/ Live(q, i) /\ (q.t[i].state = "new" => q.pending = i)
  \/ \E e \in q.cleaner : e[1] = i
  \/ \E g \in Of(q.client) : q.g[g].pc = "leaves" /\ q.g[g].ticket = i
  \/ q.pending # 0 /\ q.t[q.pending].replaces = i
TriesEnd == \A g \in Trying : Has(Q(g).waiters, g) => ~(Exclusive(Q(g)) /\ HeldCount(Q(g)) > 0)

\* A goroutine that stays is granted, where the others unlock and the store answers. Every
\* behaviour comes to rest, since each goroutine asks once: fair is that nothing stays undone.
\* A client that has no tickets left may stand still, so that it has to come to rest before.
Left(c) == queue[c].next <= Refs
Runs(g) == At(g).pc \notin {"new", "over", "asleep"} \/ (At(g).pc = "asleep" /\ (At(g).wake = "full" \/ At(g).cancelled))
Renews(c) == \E i \in 1..Refs : queue[c].t[i].state = "waiting" /\ StateAt(store, <<c, i>>) # "waiting"
LiveSpec == /\ Spec /\ \A g \in Goroutines : []<>~(Runs(g) /\ Left(ClientOf(g)) /\ ~Flaw("nobody-runs"))
            /\ \A c \in Clients : []<>~(Renews(c) /\ Left(c) /\ ~Flaw("no-renewals"))
            /\ \A c \in Clients : []<>~(queue[c].cleaner # {} /\ Left(c) /\ ~Flaw("no-cleaner"))
WaitEnds == \A g \in Stay : (At(g).pc = "asleep") ~> (At(g).pc = "holds")

\* What the properties are about does happen: each of these has to be refuted.
NeverOvertaken == \A g \in Goroutines : Sends(g) => Queued(Q(g), g)   \* a local hand-off, while a Join is under way
NeverLostUnseen == \A g \in Goroutines : LET a == At(g) IN
  ~(a.pc = "asleep" /\ a.ticket # 0 /\ Q(g).t[a.ticket].state = "gone")
NeverPushFirst == \A c \in Clients : \A i \in 1..Refs : queue[c].t[i].early = 0
NeverLateAfterLeave == \A x \in late : <<x[1], x[2]>> \notin store.tombstone

\* The queue of module LineAbs: a ticket of it is one of a client, whichever goroutine has it.
Abs == INSTANCE LineAbs WITH
  Tickets <- Clients \X (1..Refs + 1), Writers <- {x \in Clients \X (1..Refs + 1) : Kind(x[1]) = "mutex"}, Numbers <- Nat,
  line <- store.line, token <- store.token, last <- store.last, over <- store.tombstone,
  uses <- [x \in Clients \X (1..Refs + 1) |-> IF x \in Believed THEN queue[x[1]].t[x[2]].token ELSE 0]
Refines == Abs!Spec
=============================================================================
