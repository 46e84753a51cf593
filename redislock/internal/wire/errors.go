package wire

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// answers is the class of each error that servers answer, by its first word.
// None of the requests so answered has had an effect: the scripts do nothing
// that can fail after a write, and for these reasons a server refuses a
// request before it runs. A missing right is found in the middle of a script: the
// driver takes the place of that Join back.
var answers = map[string]driver.Class{
	"READONLY":    driver.Unavailable, // a replica, perhaps since a failover
	"LOADING":     driver.Unavailable,
	"MASTERDOWN":  driver.Unavailable,
	"MISCONF":     driver.Unavailable, // it cannot write to its disk
	"BUSY":        driver.Unavailable, // another client's script has run for long
	"NOREPLICAS":  driver.Unavailable,
	"OOM":         driver.Unavailable,
	"CLUSTERDOWN": driver.Unavailable,
	"TRYAGAIN":    driver.Unavailable,
	"REDIRECT":    driver.Unavailable,
	"NOSCRIPT":    driver.NotDone,
	"MOVED":       driver.NotDone,
	"ASK":         driver.Unavailable, // its slot is being moved

	"WRONGTYPE": driver.Refused,
	"NOAUTH":    driver.Refused,
	"WRONGPASS": driver.Refused,
	"NOPERM":    driver.Refused,
	"DENIED":    driver.Refused, // protected mode
	"CROSSSLOT": driver.Refused,
	"NOPROTO":   driver.Refused,
}

// passing is the list of answers of a server that does not serve yet: it loads
// its data, was just replaced or is about to be, or waits for its replicas or
// for another client's script.
var passing = []string{"READONLY", "LOADING", "MASTERDOWN", "BUSY", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "ASK"}

// passes reports whether an answer is one of passing.
func passes(text string) bool {
	word, _, _ := strings.Cut(text, " ")
	return slices.Contains(passing, word) || slices.ContainsFunc(passing, func(word string) bool {
		return strings.Contains(text, "-"+word+" ") // older servers report a script's error like this
	})
}

// phrases is the class of each error that has no first word of its own, or one
// that older servers hide in a text about the script.
var phrases = []struct {
	text  string
	class driver.Class
}{
	{"max number of clients", driver.Unavailable},
	{"max number of client", driver.Unavailable},
	{"Script killed by user", driver.Unavailable}, // possible only before the first write
	{"HOLDFAST-LAYOUT", driver.Refused},
	{"unknown command", driver.Refused},
	{"Unknown Redis command called from", driver.Refused},
	{"AUTH <password> called without any password", driver.Refused},
	{"DB index is out of range", driver.Refused},
	{"can't run this command", driver.Refused},
	{"can't access at least one of the keys", driver.Refused},
	{"no permissions", driver.Refused},
	{"lua-replicate-commands", driver.Refused},
	{"Write commands not allowed after non deterministic commands", driver.Refused},
	{"against a key holding the wrong kind of value", driver.Refused},
	{"-READONLY ", driver.Unavailable},
	{"-OOM ", driver.Unavailable},
	{"-MISCONF ", driver.Unavailable},
	{"-NOREPLICAS ", driver.Unavailable},
	{"-MASTERDOWN ", driver.Unavailable},
	{"-NOPERM ", driver.Refused},
}

// ClassifyAnswer gives an error that a server answered its class, and adds which
// right is missing, if that is the reason.
func ClassifyAnswer(text string, err error) error {
	switch rule := DeniedOf(err); rule {
	case "":
	case AnyKey, AnyChannel, anyCommand:
		err = fmt.Errorf("%w: holdfast doctor names the right that the user lacks", err)
	default:
		err = fmt.Errorf("%w: give the user %s", err, rule)
	}
	class := ClassOfAnswer(text)
	return &driver.Error{Class: class, Err: err, NotReady: class == driver.Unavailable && passes(text)}
}

// ClassOfAnswer returns the class of an error that a server answered.
func ClassOfAnswer(text string) driver.Class {
	word, _, _ := strings.Cut(text, " ")
	if class, ok := answers[word]; ok {
		return class
	}
	for _, p := range phrases {
		if strings.Contains(text, p.text) {
			return p.class
		}
	}
	return driver.Unknown
}

// AnswerOf returns the text of an error that a server answered, or "".
func AnswerOf(err error) string {
	if se, ok := errors.AsType[ServerError](err); ok {
		return string(se)
	}
	return ""
}

// IsMoving reports whether a request was put off because its slot is being
// moved.
func IsMoving(err error) bool {
	text := AnswerOf(err)
	return strings.HasPrefix(text, "TRYAGAIN") || strings.HasPrefix(text, "ASK ")
}

// MovedTo returns the slot and the address that a node's redirection gives.
// The host of the address is empty if it is the node's own.
func MovedTo(err error) (slot int, addr string, ok bool) {
	return redirected(AnswerOf(err), "MOVED ")
}

// AskAt returns the address of a key that has been moved ahead of its slot.
func AskAt(err error) (addr string, ok bool) {
	_, addr, ok = redirected(AnswerOf(err), "ASK ")
	return addr, ok
}

func redirected(text, word string) (slot int, addr string, ok bool) {
	rest, ok := strings.CutPrefix(text, word)
	number, addr, ok2 := strings.Cut(rest, " ")
	slot, err := strconv.Atoi(number)
	if !ok || !ok2 || err != nil || slot < 0 || slot >= Slots || !strings.Contains(addr, ":") {
		return 0, "", false
	}
	return slot, addr, true
}

// Answers of deniedOf where something other than a command is refused.
const (
	AnyKey     = "~"
	AnyChannel = "&"
)

// anyCommand is the answer for a command without a name: scripts do not name
// it.
const anyCommand = "+"

// DeniedOf returns the right that a refused command lacked, or "".
func DeniedOf(err error) string {
	text := AnswerOf(err)
	if !strings.HasPrefix(text, "NOPERM") && !strings.Contains(text, "The user executing the script can't") {
		return ""
	}
	if _, rest, ok := strings.Cut(text, " run the '"); ok {
		if command, _, ok := strings.Cut(rest, "'"); ok {
			return "+" + command
		}
	}
	switch {
	case strings.Contains(text, "channel"):
		return AnyChannel
	case strings.Contains(text, " key"):
		return AnyKey
	}
	return anyCommand
}
