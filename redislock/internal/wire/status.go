package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ErrAnswer is wrapped by the error of an answer that cannot be read.
var ErrAnswer = errors.New("answer not understood")

// ErrForeign is the error for a foreign value at the key of a queue.
var ErrForeign = errors.New("the key has a value that is no lock of Holdfast's")

// MaxUnits is the greatest limit: the largest number that is exact in scripts.
const MaxUnits = 1<<53 - 1

// Answers of the scripts that are no state.
const (
	foreign  = -1
	mismatch = -2
	upgrade  = -3
	spent    = -4
)

// ErrSpent is the error of a ticket for which no token is left.
var ErrSpent = driver.Errorf(driver.Refused, "the queue has no more tokens")

// IsMutex reports whether the ticket is an ordinary mutex, held in one key.
func IsMutex(t *driver.Ticket) bool { return t.Limit == 1 && t.Owner == "" }

// ReadStatus reads a script's answer about a ticket.
func ReadStatus(m *Reply, t *driver.Ticket) (driver.Status, error) {
	if n, err := m.Int(); err == nil {
		if n <= 0 {
			return driver.Status{}, Unreadable("token %d", n)
		}
		return driver.Status{State: driver.Held, Token: uint64(n), Lease: t.TTL}, nil
	}
	if text, err := m.Text(); err == nil { // the error is of this ticket alone
		return driver.Status{Err: ClassifyAnswer(text, fmt.Errorf("redis: %w", ServerError(text)))}, nil
	}
	list, err := m.List()
	if err != nil || len(list) == 0 {
		return driver.Status{}, Unreadable("no state")
	}
	code, err := list[0].Int()
	if err != nil {
		return driver.Status{}, Unreadable("no state")
	}
	switch code {
	case int64(driver.Gone):
		p := driver.Status{State: driver.Gone}
		if len(list) > 3 {
			return readBusy(list)
		}
		return p, nil
	case int64(driver.Waiting):
		if len(list) < 4 {
			break
		}
		ahead, err1 := list[1].Int()
		recheck, err2 := list[2].Int()
		holder, err3 := readHolder(list[3:])
		if err1 != nil || err2 != nil || err3 != nil || ahead < 0 || recheck < 0 || recheck > maxRecheck {
			break
		}
		return driver.Status{State: driver.Waiting, Lease: t.TTL, Ahead: int(ahead),
			Recheck: time.Duration(recheck) * time.Millisecond, Holder: holder}, nil
	case foreign:
		return driver.Status{Err: driver.Wrap(driver.Refused, ErrForeign)}, nil
	case mismatch:
		if len(list) < 2 {
			break
		}
		have, err := list[1].Int()
		if err != nil {
			break
		}
		return driver.Status{Err: &driver.LimitError{Name: t.Name, Have: have, Want: t.Limit}}, nil
	case upgrade:
		return driver.Status{Err: driver.ErrUpgrade}, nil
	case spent:
		return driver.Status{Err: ErrSpent}, nil
	}
	return driver.Status{}, Unreadable("state %d of %d values", code, len(list))
}

// readBusy reads the answer to a ticket that must not wait: who holds, and how
// long the server keeps that hold unless it is renewed.
func readBusy(list []Reply) (driver.Status, error) {
	isRecord, err1 := list[2].Int()
	left, err2 := list[3].Int()
	if err1 != nil || err2 != nil || left > maxRecheck {
		return driver.Status{}, Unreadable("hold")
	}
	holder := list[1:3]
	if isRecord != 1 {
		holder = list[1:2]
	}
	meta, err := readHolder(holder)
	if err != nil {
		return driver.Status{}, err
	}
	return driver.Status{State: driver.Gone, Holder: meta, Recheck: time.Duration(max(left, 0)) * time.Millisecond}, nil
}

// readHolder reads the holder's metadata, or the record that contains them.
func readHolder(list []Reply) (string, error) {
	text, err := list[0].Text()
	if err != nil {
		return "", Unreadable("holder")
	}
	if len(list) == 1 {
		return text, nil
	}
	_, meta, err := parseHold(text)
	return meta, err
}

// maxRecheck bounds the recheck that a server may give, in milliseconds. It is
// far above the longest TTL.
const maxRecheck = int64(3650 * 24 * time.Hour / time.Millisecond)

// Unreadable returns the error of an answer that cannot be read.
func Unreadable(format string, args ...any) error {
	return driver.Wrap(driver.Unknown, fmt.Errorf("%w: %s", ErrAnswer, fmt.Sprintf(format, args...)))
}

// ReadLeft reads the answer of the leave script: the state in which it found
// the ticket.
func ReadLeft(m *Reply, err error) driver.Status {
	if err != nil {
		return driver.Status{Err: err}
	}
	n, err := m.Int()
	if err != nil {
		if list, err := m.List(); err == nil && len(list) == 1 {
			return driver.Status{Err: driver.Wrap(driver.Refused, ErrForeign)}
		}
		return driver.Status{Err: Unreadable("no state")}
	}
	switch s := driver.State(n); s {
	case driver.Waiting, driver.Held, driver.Gone:
		return driver.Status{State: s}
	}
	return driver.Status{Err: Unreadable("state %d", n)}
}

// ParsePush reads "held <token> <id>" and "gone 0 <id>".
func ParsePush(s string) (id string, p driver.Status, err error) {
	word, rest, _ := strings.Cut(s, " ")
	text, id, _ := strings.Cut(rest, " ")
	token, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil || id == "":
	case word == "held" && token > 0:
		return id, driver.Status{State: driver.Held, Token: token}, nil
	case word == "gone" && token == 0:
		return id, driver.Status{State: driver.Gone}, nil
	}
	return "", driver.Status{}, errors.New("not a push of Holdfast")
}
