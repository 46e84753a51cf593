package redislock

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// answers is the class of each error that servers answer, by its first word.
// None of the requests so answered has had an effect: the scripts do nothing
// that can fail after a write, and for these reasons a server refuses a
// request before it runs.
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

// classify gives an error of the client library its class.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*driver.Error](err); ok {
		return err
	}
	if text := answerOf(err); text != "" {
		return answered(text, err)
	}
	if r, ok := errors.AsType[*client.Refusal](err); ok {
		return &driver.Error{Class: classOfAnswer(r.Text), Err: r}
	}
	if oe, ok := errors.AsType[*net.OpError](err); ok && oe.Op == "dial" {
		return &driver.Error{Class: driver.Unavailable, Err: err}
	}
	if errors.Is(err, client.ErrClosed) {
		// The client was closed by its owner and will serve no more.
		return &driver.Error{Class: driver.Refused, Err: err}
	}
	return driver.Wrap(driver.Unknown, err)
}

// answered gives an error that a server answered its class, and adds which
// right is missing, if that is the reason.
func answered(text string, err error) error {
	switch rule := deniedOf(err); rule {
	case "":
	case anyKey, anyChannel, anyCommand:
		err = fmt.Errorf("%w: holdfast doctor names the right that the user lacks", err)
	default:
		err = fmt.Errorf("%w: give the user %s", err, rule)
	}
	class := classOfAnswer(text)
	return &driver.Error{Class: class, Err: err, NotReady: class == driver.Unavailable && passes(text)}
}

// classOfAnswer returns the class of an error that a server answered.
func classOfAnswer(text string) driver.Class {
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

// errClosing is the error of a call during which the driver was closed.
var errClosing = &driver.Error{Class: driver.Unknown, Err: driver.ErrClosed}

var (
	// errDropped is the error of a call on a driver whose server is no longer
	// used.
	errDropped = driver.Errorf(driver.NotDone, "server is no longer the primary")
	// errCut is the error of a call that was under way when its server was
	// dropped.
	errCut = driver.Errorf(driver.Unknown, "connection closed: the server is no longer the primary")
)

// overErr returns the error of a call that begins after the driver's end.
func (d *Driver) overErr() error {
	if d.replaceable {
		return errDropped
	}
	return driver.ErrClosed
}

// cutErr returns the error of a call that was under way when the driver ended.
func (d *Driver) cutErr() error {
	if d.replaceable {
		return errCut
	}
	return errClosing
}

// classify gives an error of the driver's client its class. That the client is
// closed is its owner's doing, except at a replaceable driver, which closes its
// client itself.
func (d *Driver) classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrOver):
		return d.overErr()
	case errors.Is(err, client.ErrCut):
		return d.cutErr()
	case d.replaceable && errors.Is(err, client.ErrClosed):
		return errCut
	}
	return classify(err)
}

// errForeign is the error for a foreign value at the key of a queue.
var errForeign = errors.New("the key has a value that is no lock of Holdfast's")

// answerOf returns the text of an error that a server answered, or "".
func answerOf(err error) string {
	if se, ok := errors.AsType[wire.ServerError](err); ok {
		return string(se)
	}
	return ""
}

// moving reports whether a request was put off because its slot is being
// moved.
func moving(err error) bool {
	text := answerOf(err)
	return strings.HasPrefix(text, "TRYAGAIN") || strings.HasPrefix(text, "ASK ")
}

// movedTo returns the slot and the address that a node's redirection gives.
// The host of the address is empty if it is the node's own.
func movedTo(err error) (slot int, addr string, ok bool) {
	return redirected(answerOf(err), "MOVED ")
}

// askAt returns the address of a key that has been moved ahead of its slot.
func askAt(err error) (addr string, ok bool) {
	_, addr, ok = redirected(answerOf(err), "ASK ")
	return addr, ok
}

func redirected(text, word string) (slot int, addr string, ok bool) {
	rest, ok := strings.CutPrefix(text, word)
	number, addr, ok2 := strings.Cut(rest, " ")
	slot, err := strconv.Atoi(number)
	if !ok || !ok2 || err != nil || slot < 0 || slot >= slots || !strings.Contains(addr, ":") {
		return 0, "", false
	}
	return slot, addr, true
}
