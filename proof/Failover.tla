------------------------------ MODULE Failover ------------------------------
(***************************************************************************)
(* A primary with replicas that are behind: a Redis behind Sentinels. It   *)
(* answers a Join, and its replicas learn of it later. When it dies, any   *)
(* replica may be promoted, one that has not heard of the last grant, too. *)
(* With Wait the client takes a grant for one only when as many replicas   *)
(* have it (min_replicas). Nobody's lease ends here: what overlaps, does   *)
(* so with no clock in it.                                                 *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Clients,   \* as numbers; each has one ticket
  Replicas,  \* as numbers from 1; the first primary is 0
  Wait,      \* replicas that have to have a grant before its client takes it
  Deaths     \* primaries that die

ASSUME Wait <= Cardinality(Replicas) /\ Deaths <= Cardinality(Replicas)

VARIABLES
  server,   \* of each server, whether it is up, who holds by it, and its last token
  primary,  \* the server that answers
  client    \* of each client what it does, and its token

vars == <<server, primary, client>>
Servers == {0} \cup Replicas
Up == {s \in Servers : server[s].up}

Init == /\ server = [s \in Servers |-> [up |-> TRUE, by |-> 0, last |-> 0]] /\ primary = 0
        /\ client = [c \in Clients |-> [state |-> "new", token |-> 0]]

\* The clocks of all servers: tokens are above them, so that they grow over a failover.
Clock == CHOOSE n \in {server[s].last : s \in Servers} : \A s \in Servers : server[s].last <= n
\* Join 3 and 5: granted, where nobody holds. The client does not know yet.
Join(c) ==
  /\ client[c].state = "new" /\ primary \in Up /\ server[primary].by = 0
  /\ server' = [server EXCEPT ![primary].by = c, ![primary].last = Clock + 1]
  /\ client' = [client EXCEPT ![c] = [state |-> "asked", token |-> Clock + 1]]
  /\ UNCHANGED primary
Replicate(s) ==
  /\ s \in Up /\ primary \in Up /\ server[s] # server[primary]
  /\ server' = [server EXCEPT ![s] = server[primary]] /\ UNCHANGED <<primary, client>>
\* The answer comes, from the server that made the grant, once enough replicas have it.
Answer(c) ==
  /\ client[c].state = "asked" /\ primary \in Up /\ server[primary].by = c
  /\ Cardinality({s \in Up \ {primary} : server[s].by = c}) >= Wait
  /\ client' = [client EXCEPT ![c].state = "holds"] /\ UNCHANGED <<server, primary>>
Leave(c) ==
  /\ client[c].state = "holds" /\ primary \in Up
  /\ client' = [client EXCEPT ![c] = [state |-> "over", token |-> 0]]
  /\ server' = IF server[primary].by = c THEN [server EXCEPT ![primary].by = 0] ELSE server
  /\ UNCHANGED primary
Die == /\ primary \in Up /\ Cardinality(Servers \ Up) < Deaths
       /\ server' = [server EXCEPT ![primary].up = FALSE] /\ UNCHANGED <<primary, client>>
Promote(s) == /\ primary \notin Up /\ s \in Up /\ primary' = s /\ UNCHANGED <<server, client>>

Next == \/ \E c \in Clients : Join(c) \/ Answer(c) \/ Leave(c)
        \/ \E s \in Replicas : Replicate(s) \/ Promote(s)
        \/ Die
Spec == Init /\ [][Next]_vars

Holding == {c \in Clients : client[c].state = "holds"}
Exclusion == Cardinality(Holding) <= 1
\* What is answered was made known to as many replicas as were asked for.
Confirmed == \A c \in Holding : server[primary].by = c \/ primary \notin Up

Shows(s) == (IF server[s].up THEN (IF s = primary THEN <<"primary:">> ELSE <<"replica:">>) ELSE <<"dead:">>)
            \o (IF server[s].by = 0 THEN <<"nobody">> ELSE <<"client", server[s].by, "token", server[s].last>>)
Says(c) == IF client[c].state = "new" THEN <<"-">>
           ELSE IF client[c].state = "holds" THEN <<"holds,", "token", client[c].token>> ELSE <<client[c].state>>
Picture == <<Says(1), Says(2), Shows(0), Shows(1)>>
=============================================================================
