------------------------------- MODULE Nodes --------------------------------
(***************************************************************************)
(* RedLock: a lock is held by votes of a majority of independent servers.  *)
(* Each node is a lock with one place, a token that only grows while its   *)
(* data are there, and a time for which it keeps a vote (redlock/vote.go). *)
(* A contender asks its home first, and the others once it has the home's  *)
(* vote (seek.go). It holds with a majority and a final token: the middle  *)
(* one of the answers, which a majority has to remember (token.go).        *)
(*                                                                         *)
(* A node may die and come back without its data. With the restart guard   *)
(* it refuses joins for the longest TTL (redislock, restart_guard). The    *)
(* clock of each node is in its tokens alone; time is what is left of a    *)
(* vote at its node and at the contender, and all of it ticks at once:     *)
(* drift is the matter of module Line.                                     *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Nodes,      \* numbers; the home is the first one that is up
  Contenders, \* attempts; a ticket of its own each
  Quorum,     \* votes that hold
  Lease,      \* ticks of a claim, counted from sending
  Keep,       \* ticks that a node keeps a vote
  Guard,      \* ticks for which a node without its data refuses joins
  Crashes,    \* nodes that lose their data
  Jumps,      \* nodes whose clock jumps ahead, past the end of their vote
  Losses,     \* votes of which the contender hears nothing
  Times,      \* ticks of the world
  Bug

ASSUME 2 * Quorum > Cardinality(Nodes)

VARIABLES
  node,   \* of each node, whose vote it keeps and for how long, its last token, its guard
  seeks,  \* of each contender, the votes that it has counted, see Fresh
  late,   \* <<contender, node>>: votes that are given back, and not yet
  world   \* counts, the highest token of a grant, and whether a grant's was not above it

vars == <<node, seeks, late, world>>
Flaw(name) == Bug = name
Less(a) == IF a > 0 THEN a - 1 ELSE 0
Max(a, b) == IF a > b THEN a ELSE b

NoVote == [token |-> 0, left |-> 0]
Fresh == [state |-> "new", vote |-> [n \in Nodes |-> NoVote]]
Empty == [by |-> 0, left |-> 0, last |-> 0, guard |-> 0]
Init == /\ node = [n \in Nodes |-> Empty] /\ seeks = [c \in Contenders |-> Fresh]
        /\ world = [ticks |-> 0, crashes |-> 0, jumps |-> 0, losses |-> 0, top |-> 0, back |-> FALSE] /\ late = {}

Home == CHOOSE n \in Nodes : \A m \in Nodes : n <= m
Has(c, n) == seeks[c].vote[n].left > 0
Held(c) == {n \in Nodes : Has(c, n)}

\* Join of an attempt: the contender seeks.
Seek(c) ==
  /\ seeks[c].state = "new" /\ seeks' = [seeks EXCEPT ![c].state = "seeks"] /\ UNCHANGED <<node, late, world>>
\* requestVote: a node votes if it has no other vote and no guard.
Free(c, n) == node[n].by \in {0, c} /\ node[n].guard = 0
Token(n) == IF Flaw("token-restarts") THEN node[n].last + 1 ELSE Max(node[n].last, world.ticks) + 1
Vote(c, n) ==
  /\ seeks[c].state = "seeks" /\ ~Has(c, n) /\ Free(c, n)
  /\ n = Home \/ Has(c, Home) \/ node[Home].guard > 0
  /\ node' = [node EXCEPT ![n].by = c, ![n].left = Keep, ![n].last = Token(n)]
  /\ seeks' = [seeks EXCEPT ![c].vote[n] = [token |-> Token(n), left |-> Lease]]
  /\ UNCHANGED <<late, world>>
\* onVote of an answer that was lost: the node has the vote, and the contender does not count it.
LoseVote(c, n) ==
  /\ world.losses < Losses /\ seeks[c].state = "seeks" /\ ~Has(c, n) /\ node[n].by = 0 /\ node[n].guard = 0
  /\ node' = [node EXCEPT ![n].by = c, ![n].left = Keep, ![n].last = Token(n)]
  /\ world' = [world EXCEPT !.losses = @ + 1] /\ UNCHANGED <<seeks, late>>
\* final: the middle token, if as many answers are not below it.
Tokens(c) == {seeks[c].vote[n].token : n \in Held(c)}
AtLeast(c, t) == Cardinality({n \in Held(c) : seeks[c].vote[n].token >= t})
AtMost(c, t) == Cardinality({n \in Held(c) : seeks[c].vote[n].token <= t})
Final(c) == {t \in Tokens(c) : AtMost(c, t) >= Quorum /\ (AtLeast(c, t) >= Quorum \/ Flaw("token-of-one"))}
Enough == IF Flaw("minority") THEN Quorum - 1 ELSE Quorum
Won(c) ==
  /\ seeks[c].state = "seeks" /\ Cardinality(Held(c)) >= Enough
  /\ \E t \in (IF Flaw("lowest-token") \/ Flaw("minority") THEN Tokens(c) ELSE Final(c)) :
       world' = [world EXCEPT !.top = Max(@, t), !.back = @ \/ t <= world.top]
  /\ seeks' = [seeks EXCEPT ![c].state = "held"] /\ UNCHANGED <<node, late>>
\* writeBack: votes below the highest token are asked again, for no lower one.
WriteBack(c, n) ==
  LET top == CHOOSE t \in Tokens(c) : \A u \in Tokens(c) : t >= u IN
  /\ seeks[c].state = "seeks" /\ Has(c, n) /\ Cardinality(Held(c)) >= Quorum /\ Final(c) = {}
  /\ seeks[c].vote[n].token < top /\ node[n].by = c
  /\ node' = [node EXCEPT ![n].last = Max(@, top), ![n].left = Keep]
  /\ seeks' = [seeks EXCEPT ![c].vote[n] = [token |-> Max(node[n].last, top), left |-> Lease]]
  /\ UNCHANGED <<late, world>>
\* renew: a node that has lost the vote says so. It is asked again as one that never had it.
Renew(c, n) ==
  /\ seeks[c].state = "held" /\ Has(c, n) /\ seeks[c].vote[n].left < Lease
  /\ node' = IF node[n].by = c THEN [node EXCEPT ![n].left = Keep] ELSE node
  /\ seeks' = [seeks EXCEPT ![c].vote[n] = IF node[n].by = c THEN [@ EXCEPT !.left = Lease] ELSE NoVote]
  /\ UNCHANGED <<late, world>>
\* A hold without a majority is lost, at once; and Unlock, or a try that failed.
Believes(c) == seeks[c].state = "held" /\ Cardinality(Held(c)) >= Enough
GiveBack(c) ==
  /\ seeks[c].state \in {"seeks", "held"} /\ seeks' = [seeks EXCEPT ![c] = [Fresh EXCEPT !.state = "over"]]
  /\ late' = late \cup {<<c, n>> : n \in {m \in Nodes : node[m].by = c /\ (Has(c, m) \/ ~Flaw("vote-forgotten"))}}
  /\ UNCHANGED <<node, world>>
\* leave: a vote is given back, now or later.
Leave(c, n) ==
  /\ <<c, n>> \in late /\ late' = late \ {<<c, n>>}
  /\ node' = IF node[n].by = c \/ Flaw("strangers-leave") THEN [node EXCEPT ![n].by = 0, ![n].left = 0] ELSE node
  /\ UNCHANGED <<seeks, world>>
\* A node dies, and comes back without its data.
Crash(n) ==
  /\ world.crashes < Crashes
  /\ node' = [node EXCEPT ![n] = [Empty EXCEPT !.guard = Guard]]
  /\ world' = [world EXCEPT !.crashes = @ + 1] /\ UNCHANGED <<seeks, late>>
Jump(n) ==
  /\ world.jumps < Jumps /\ node[n].by # 0
  /\ node' = [node EXCEPT ![n].by = 0, ![n].left = 0]
  /\ world' = [world EXCEPT !.jumps = @ + 1] /\ UNCHANGED <<seeks, late>>
\* A vote that is not renewed ends at its node.
Tick ==
  /\ world.ticks < Times
  /\ node' = [n \in Nodes |-> [node[n] EXCEPT !.left = Less(@), !.by = IF node[n].left <= 1 THEN 0 ELSE @, !.guard = Less(@)]]
  /\ seeks' = [c \in Contenders |-> [seeks[c] EXCEPT !.vote = [n \in Nodes |->
       IF seeks[c].vote[n].left <= 1 THEN NoVote ELSE [seeks[c].vote[n] EXCEPT !.left = @ - 1]]]]
  /\ world' = [world EXCEPT !.ticks = @ + 1] /\ UNCHANGED late

Next == \/ \E c \in Contenders : Seek(c) \/ Won(c) \/ GiveBack(c)
        \/ \E c \in Contenders, n \in Nodes : WriteBack(c, n) \/ Renew(c, n) \/ Leave(c, n) \/ Vote(c, n) \/ LoseVote(c, n)
        \/ \E n \in Nodes : Crash(n) \/ Jump(n)
        \/ Tick
Spec == Init /\ [][Next]_vars

(************************* What must hold **********************************)

Exclusion == Cardinality({c \in Contenders : Believes(c)}) <= 1
Grow == ~world.back
\* While no node loses its data, a vote that a contender counts is at its node: nobody
\* else gives it back.
OwnVote == world.crashes + world.jumps = 0 => \A c \in Contenders : \A n \in Held(c) : node[n].by = c
\* Every vote of a contender that is over is given back, also one that it has not counted.
Residue == \A c \in Contenders : seeks[c].state = "over" => \A n \in Nodes : node[n].by = c => <<c, n>> \in late
\* What the properties are about does happen; each of these has to be refuted.
NeverLost == \A c \in Contenders : seeks[c].state = "held" => Believes(c)
NeverSplit == \A c, d \in Contenders : c # d => (Held(c) = {} \/ Held(d) = {})
NeverHeldAfterCrash == \A c \in Contenders : ~(Believes(c) /\ world.crashes > 0 /\ \E n \in Held(c) : node[n].by # c)

\* The queue of module LineAbs: without an order, only those that hold are in it.
Believed == [c \in Contenders |-> IF Believes(c) THEN world.top ELSE 0]
Abs == INSTANCE LineAbs WITH
  Tickets <- Contenders, Writers <- {}, Limit <- 1, Numbers <- Nat,
  line <- SelectSeq([i \in 1..Cardinality(Contenders) |-> i], Believes),
  token <- Believed, uses <- Believed, last <- world.top, over <- {c \in Contenders : seeks[c].state = "over"}
Refines == Abs!Spec

\* What a counterexample shows of a state of three nodes.
Asks(c) == IF Believes(c) THEN <<"holds", "by", Cardinality(Held(c)), "votes">>
           ELSE IF Held(c) = {} THEN <<"-">> ELSE <<"has", Cardinality(Held(c)), "votes">>
Votes(n) == IF node[n].by > 0 THEN <<"client", node[n].by, "|", node[n].left, "ticks", "left">>
            ELSE IF node[n].guard > 0 THEN <<"refuses", "for", node[n].guard, "ticks">> ELSE <<"nobody">>
Picture == <<Asks(1), Asks(2), Votes(1), Votes(2), Votes(3)>>
=============================================================================
