package wire

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Requests makes the requests of one driver.
type Requests struct {
	KeyCache
	Scripts *Scripts
	keeps   atomic.Pointer[keepText]
}

// Init sets the prefix of the keys, the channel of the pushes, and the scripts. Sharded
// says that the server is a node of a cluster, as the scripts have to be.
func (q *Requests) Init(prefix, channel string, sharded bool, scripts *Scripts) {
	q.KeyCache.Init(prefix, channel, sharded)
	q.Scripts = scripts
}

// keepText is the time for which tickets of a TTL are kept, in milliseconds,
// as text.
type keepText struct {
	ttl  time.Duration
	text string
}

// keep returns the milliseconds for which the store keeps a ticket.
func (q *Requests) keep(ttl time.Duration) string {
	if k := q.keeps.Load(); k != nil && k.ttl == ttl {
		return k.text
	}
	ms := (driver.Keep(ttl) + time.Millisecond - 1) / time.Millisecond
	k := &keepText{ttl, strconv.FormatInt(int64(ms), 10)}
	q.keeps.Store(k)
	return k.text
}

// yes returns an argument that is true or false in a script.
func yes(b bool) string {
	if b {
		return "1"
	}
	return ""
}

// Join returns the request by which a ticket joins. A ticket that polls has no
// channel: the scripts grant to it and publish nothing.
func (q *Requests) Join(t *driver.Ticket, wait, polls bool) Request {
	l := q.Get(t.Name)
	channel := l.Channel
	if polls {
		channel = ""
	}
	r := Request{Script: q.Scripts.Join, NumKeys: l.num(), Keys: l.Keys, NumArgs: 5, Args: [MaxArgs]string{t.ID, q.keep(t.TTL), channel, t.Meta, yes(wait)}}
	if t.MinToken != 0 {
		r.NumArgs = 6
		r.Args[5] = strconv.FormatUint(t.MinToken, 10)
	}
	if !IsMutex(t) || t.Replaces != nil {
		r.NumArgs = MaxArgs
		r.Args[5] = strconv.FormatUint(t.MinToken, 10)
		r.Args[6] = strconv.FormatInt(t.Limit, 10)
		r.Args[7] = strconv.FormatInt(t.Units, 10)
		r.Args[8] = t.Owner
		if t.Replaces != nil {
			r.Args[9] = t.Replaces.ID
		}
	}
	return r
}

// Leave returns the request by which a ticket leaves.
func (q *Requests) Leave(r *driver.Ref) Request {
	n := 2
	if r.JoinPending {
		n = 3
	}
	l := q.Get(r.Name)
	return Request{Script: q.Scripts.Leave, NumKeys: l.num(), Keys: l.Keys, NumArgs: n,
		Args: [MaxArgs]string{r.ID, yes(IsMutex(r.Ticket)), "1"}}
}

// MarkKeys returns the keys of a script on the mark of a name.
func (q *Requests) MarkKeys(name string) []string {
	l := q.Make(name)
	return append([]string{l.MarkKey()}, l.All()[KeyNone:]...)
}

// Run is a script with its keys and arguments, as one of several that are sent
// together.
type Run struct {
	Script     *Script
	Keys, Args []string
}

// Words returns the command that runs the script, by its name or in full.
func (r *Run) Words(full bool) []string { return r.Script.Words(full, r.Keys, r.Args) }

// Run returns the request as one of several.
func (r Request) Run() Run { return Run{r.Script, r.Keys[:r.NumKeys], r.Args[:r.NumArgs]} }
