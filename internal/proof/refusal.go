package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// Refusal is an event that module Trace cannot take.
type Refusal struct {
	Trace *trace.Trace
	At    int    // index of the event
	What  string // the part that differs
	Spec  string // as the specification has it
	Code  string // as the trace has it
	Queue string // the queue before the event, as the specification has it
	Token string // the tokens of its tickets, of which those that wait have 0
}

// String tells the refusal with the ten events before it.
func (r *Refusal) String() string {
	var b strings.Builder
	e := &r.Trace.Events[r.At]
	fmt.Fprintf(&b, "seed %d, lock %q: event %d, %s, is refused: %s\n   the queue before it, as the specification has it: %s\n",
		r.Trace.Seed, r.Trace.Name, r.At+1, strings.TrimSpace(fmt.Sprintf("%s of %s", e.Kind, e.ID)), r.why(), r.queue())
	for i := max(0, r.At-10); i <= r.At; i++ {
		mark := "   "
		if i == r.At {
			mark = " > "
		}
		fmt.Fprintf(&b, "%s%v\n", mark, r.Trace.Events[i])
	}
	return b.String()
}

// conjuncts says in words what a part of module Trace asks of an event, by the name that
// it prints.
var conjuncts = map[string]string{
	"HoldDone of a hold that has ended": "HoldDone comes after the user unlocks, or with a loss",
	"LockDone came before":              "the Observer was told LockDone of the hold, at this client",
	"a grant that the client knows":     "an answer that the client heard, or a push, called its ticket held with this token, and it has not left",
	"a hold that is new":                "a call returns a hold once",
	"a hold that was got":               "a call returned the hold, and it has not ended before",
	"a loss is told":                    "each hold ends before the claim of its ticket, counted from the sending of a request, or as the client hears that the ticket is gone",
	"a loss is told first":              "the context of a lost hold ends before the user unlocks it",
	"alone with its ticket":             "no other hold of the ticket is open, but for readers",
	"an owner has one token":            "a hold of a named owner has the token of the owner's place, and no part of the core's",
	"each hold has ended":               "at the end the user has unlocked each hold, and HoldDone was told of it",
	"holds are numbered":                "the holds have the order of their LockDone",
	"it watches once":                   "a client that has subscribed to pushes does not subscribe again",
	"its claim lasts":                   "the claim of the ticket, counted from the sending of a request, is not over",
	"its holds have ended":              "a client gives up a ticket after its holds have ended",
	"lost":                              "a hold is told of a loss",
	"a loss stays":                      "a hold that was told of its loss says so when its user unlocks it",
	"HoldDone tells the loss":           "HoldDone of a hold that was told of its loss is of that loss",
	"its places have ended":             "a client that has closed without an error has left all its places, or their time is over",
	"its ticket waits":                  "a call that waits for many leases has a ticket that waits",
	"nobody else's ticket":              "a client renews, leaves and replaces its own tickets",
	"one ticket at a time":              "a client that holds alone asks for no second ticket",
	"one HoldDone of a hold":            "HoldDone comes once",
	"others have ended":                 "the holds of others that leave no room have ended, or were told of their loss",
	"the token of the hold":             "the events of a hold have one token",
	"tokens grow":                       "the token of a hold that excludes others is greater than each before",
	"Join of a ticket that left":        "no Join follows a Leave that was certain (Join 2)",
	"ahead":                             "Ahead is the number of places before it",
	"an upgrade":                        "only a ticket that asks for more units than its owner's place has is refused (Join 7)",
	"client is open":                    "a client that was closed is answered nothing but errors",
	"error":                             "the request is answered without an error",
	"granted":                           "the ticket was granted in a turn of its own, and the view has it so",
	"its own ticket":                    "a push, or a hold, is about a ticket of the client that has it (Watch 1)",
	"it has no place":                   "a ticket that a push calls gone has no place",
	"lease":                             "this answer has no lease",
	"lease as long as the TTL":          "the lease is at least the TTL (Join 9)",
	"lease kept by the store":           "the lease is not longer than the store keeps the place (Join 9)",
	"left":                              "the view says how long the place is kept",
	"listed":                            "the name is listed while its queue has a ticket (Names 1)",
	"no upgrade":                        "a ticket that asks for more units than its owner's place has is refused (Join 7)",
	"queue":                             "the view has the tickets in the order of the queue",
	"refused for certain":               "an error of this class says that the request was not carried out",
	"state":                             "the state of the ticket",
	"the client watches":                "a push goes to a client that subscribed",
	"there is no such ticket":           "Break says that there is no ticket only where there is none (Break 1)",
	"there is such a ticket":            "Break is done where the ticket has a place (Break 1)",
	"token":                             "a ticket that does not hold has no token",
	"token in order":                    "tokens are in the order of the grants, and a grant keeps its token (Join 5)",
	"token not below the floor":         "the token is not below the lowest that the ticket accepts",
	"tokens in order":                   "the tokens of the view are in the order of the grants",
	"traits":                            "the traits stay as they were (Traits 1)",
}

// why says what the specification asks of the event, and what the trace has.
func (r *Refusal) why() string {
	asks := conjuncts[r.What]
	if r.Spec == "TRUE" && r.Code == "FALSE" {
		return fmt.Sprintf("%s: this does not hold: %s", r.What, asks)
	}
	return fmt.Sprintf("%s: the specification has %s, the trace %s: %s", r.What, r.Spec, r.Code, asks)
}

var (
	numberRE = regexp.MustCompile(`\d+`)
	tokenRE  = regexp.MustCompile(`(\d+) :> (\d+)`)
)

// queue tells the queue in words: the ids of its tickets, and what each does there.
func (r *Refusal) queue() string {
	ids, err := r.Trace.Tickets()
	if err != nil {
		return r.Queue
	}
	tokens := map[string]string{}
	for _, m := range tokenRE.FindAllStringSubmatch(r.Token, -1) {
		tokens[m[1]] = m[2]
	}
	var all []string
	for _, n := range numberRE.FindAllString(r.Queue, -1) {
		does := "waits"
		if tokens[n] != "" && tokens[n] != "0" {
			does = "holds with grant " + tokens[n]
		}
		all = append(all, ids[int(number(n))]+" "+does)
	}
	if len(all) == 0 {
		return "nobody"
	}
	return strings.Join(all, ", ")
}
