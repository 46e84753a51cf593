package natslock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The prefixes of keys.
const (
	queuePrefix = "queue."
	markPrefix  = "mark."
	layoutKey   = "layout" // a number; a version that cannot share the bucket with this one writes it
)

// charset has the bytes of keys that stand for themselves. Keys allow '=' and '/'
// but not '%' and '~', so that these are written in their stead.
var charset = driver.Charset{
	Plain: func(b byte) bool {
		return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_'
	},
	Max: 200,
}

var toKey = strings.NewReplacer("%", "=", "~", "/")

func queueKey(name string) string { return queuePrefix + toKey.Replace(charset.Encode(name)) }

func markKey(name string) string { return markPrefix + toKey.Replace(charset.Encode(name)) }

func stream(bucket string) string { return "KV_" + bucket }

// bucket is the bucket on one connection.
type bucket struct {
	nc       *nats.Conn
	name     string
	api      string // prefix of JetStream's subjects
	replicas int    // of a bucket that is created; 0 means 1
	calls    calls
	// connected is closed, and replaced, when there is a connection again.
	connected atomic.Pointer[chan struct{}]
}

func (b *bucket) subject(key string) string { return "$KV." + b.name + "." + key }

// requestLimit bounds the wait for one answer. A server that is elected anew
// loses requests, and nothing says so.
const requestLimit = 5 * time.Second

// entry is the value of a key. The zero entry is that of a key without one.
type entry struct {
	data     []byte // nil: there is none
	revision uint64 // for the next write
}

// read returns the value of a key, and the time on the server's clock, which was
// read after read was called. Both requests are under way together.
func (d *Driver) read(ctx context.Context, key string) (entry, time.Time, error) {
	reading := d.clock.ask(d)
	e, err := d.bucket.get(ctx, key)
	now, clockErr := d.clock.wait(ctx, d, reading)
	if err == nil {
		err = clockErr
	}
	if isNotFound(err) {
		// Somebody deleted the bucket.
		if err = d.bucket.createStream(ctx); err == nil {
			var info *jetstream.StreamInfo
			if info, err = d.bucket.streamInfo(ctx); err == nil {
				return entry{}, info.TimeStamp, nil
			}
		}
	}
	if err != nil && ctx.Err() == nil && driver.ClassOf(err) == driver.Unknown {
		err = &driver.Error{Class: driver.Unavailable, Err: err} // a read has no effect
	}
	return e, now, err
}

// maxRecord returns the length of the longest record that a Join may write. The
// rest of the server's limit is left to requests that end tickets.
func (b *bucket) maxRecord() int {
	limit := int(b.nc.MaxPayload())
	return limit - min(64<<10, limit/8)
}

// head is the part that all answers of JetStream's API have.
type head struct {
	Error *jetstream.APIError `json:"error"`
}

// get returns the value of a key, as the server that leads has it.
func (b *bucket) get(ctx context.Context, key string) (entry, error) {
	var answer struct {
		head
		Message struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	body, _ := json.Marshal(map[string]string{"last_by_subj": b.subject(key)})
	err := b.ask(ctx, "STREAM.MSG.GET."+stream(b.name), body, &answer, &answer.head)
	if hasCode(err, jetstream.JSErrCodeMessageNotFound) || isNotFound(err) {
		return entry{}, nil
	} else if err != nil {
		return entry{}, err
	}
	m := &answer.Message
	e := entry{data: m.Data, revision: m.Sequence}
	if h, err := nats.DecodeHeadersMsg(m.Header); err == nil && (h.Get("KV-Operation") != "" || h.Get("Nats-Marker-Reason") != "") {
		e.data = nil // the key was deleted
	} else if e.data == nil {
		e.data = []byte{} // somebody's empty value
	}
	return e, nil
}

// write sets the value of a key unless it was written since revision. The server
// removes the value after keep, if that is not 0.
func (b *bucket) write(ctx context.Context, key string, data []byte, revision uint64, keep time.Duration) (conflict bool, err error) {
	m := nats.NewMsg(b.subject(key))
	m.Data = data
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(revision, 10))
	if keep > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(int64(keep/time.Second), 10)+"s")
	}
	reply, err := b.calls.send(ctx, b, m)
	if err != nil {
		return false, err
	}
	var ack struct {
		head
		Sequence uint64 `json:"seq"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil || ack.Error == nil && ack.Sequence == 0 {
		return false, driver.Errorf(driver.Unknown, "the answer to a write is not one of JetStream")
	}
	if e := ack.Error; e != nil {
		if e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant {
			return true, nil
		}
		return false, apiError(e)
	}
	return false, nil
}

// streamInfo returns the state of the bucket's stream.
func (b *bucket) streamInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	var answer struct {
		head
		jetstream.StreamInfo
	}
	if err := b.ask(ctx, "STREAM.INFO."+stream(b.name), nil, &answer, &answer.head); err != nil {
		return nil, err
	}
	return &answer.StreamInfo, nil
}

// keys returns the keys that begin with a prefix, which ends with a dot.
func (b *bucket) keys(ctx context.Context, prefix string) ([]string, error) {
	found := make(map[string]bool)
	for {
		var answer struct {
			head
			Total int `json:"total"`
			State struct {
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		body, _ := json.Marshal(map[string]any{"subjects_filter": b.subject(prefix + ">"), "offset": len(found)})
		if err := b.ask(ctx, "STREAM.INFO."+stream(b.name), body, &answer, &answer.head); isNotFound(err) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		before := len(found)
		for s := range answer.State.Subjects {
			found[strings.TrimPrefix(s, b.subject(""))] = true
		}
		if len(found) == before || len(found) >= answer.Total {
			return slices.Sorted(maps.Keys(found)), nil
		}
	}
}

// createStream creates the bucket, unless it exists.
func (b *bucket) createStream(ctx context.Context) error {
	config := jetstream.StreamConfig{
		Name:              stream(b.name),
		Description:       "locks of Holdfast",
		Subjects:          []string{b.subject(">")},
		Storage:           jetstream.FileStorage,
		Replicas:          max(b.replicas, 1),
		Retention:         jetstream.LimitsPolicy,
		MaxConsumers:      -1,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgSize:        -1,
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardNew,
		DenyDelete:        true,
		AllowRollup:       true,
		AllowMsgTTL:       true,
	}
	body, err := json.Marshal(config)
	if err != nil {
		return err
	}
	var answer struct {
		head
		jetstream.StreamInfo
	}
	err = b.ask(ctx, "STREAM.CREATE."+config.Name, body, &answer, &answer.head)
	if hasCode(err, jetstream.JSErrCodeStreamNameInUse) { // with another configuration, which checkStream examines
		return nil
	}
	return err
}

// ask sends a request to JetStream's API and decodes its answer into to, whose
// head is h.
func (b *bucket) ask(ctx context.Context, what string, body []byte, to any, h *head) error {
	m := nats.NewMsg(b.api + what)
	m.Data = body
	reply, err := b.calls.send(ctx, b, m)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(reply.Data, to); err != nil {
		return driver.Errorf(driver.Refused, "the answer to %s is not one of JetStream: %w", what, err)
	}
	if h.Error != nil {
		return apiError(h.Error)
	}
	return nil
}

// apiError gives an answer of JetStream its class. Such an answer says that the
// request was not carried out.
func apiError(e *jetstream.APIError) error {
	err := fmt.Errorf("JetStream: %w", e)
	switch code := int(e.ErrorCode); {
	case code == 10008 || code == 10009 || code == 10074 || code == 10118 || code == 10076:
		// no meta leader, stream offline, server shutting JetStream down
		return driver.NotReady(0, "%w", err)
	case e.Code >= 500 || code == 10002 || code == 10028 || code == 10047 || code == 10023:
		return driver.Wrap(driver.Unavailable, err) // full, or out of resources
	}
	return driver.Wrap(driver.Refused, err)
}

func hasCode(err error, code jetstream.ErrorCode) bool {
	e, ok := errors.AsType[*jetstream.APIError](err)
	return ok && e.ErrorCode == code
}

func isNotFound(err error) bool { return hasCode(err, jetstream.JSErrCodeStreamNotFound) }
