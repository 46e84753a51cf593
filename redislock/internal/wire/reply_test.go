package wire

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// fuzzedReply builds an answer from bytes: numbers, texts, and lists of them.
func fuzzedReply(b []byte, deep int) (Reply, []byte) {
	if len(b) == 0 {
		return Reply{}, nil
	}
	kind, size, b := b[0]%5, int(b[0]/5), b[1:]
	switch kind {
	case 0:
		var n [8]byte
		k := copy(n[:], b)
		return Number(int64(binary.LittleEndian.Uint64(n[:]))), b[k:]
	case 1:
		return Number(int64(size) - 10), b
	case 2:
		size = min(size, len(b))
		return Text(string(b[:size])), b[size:]
	case 3:
		return Failed(ServerError("ERR no")), b
	}
	var l []Reply
	for deep > 0 && len(l) < size%9 {
		var r Reply
		r, b = fuzzedReply(b, deep-1)
		l = append(l, r)
	}
	return List(l), b
}

// FuzzAnswer checks that any answer of a server is read as a possible status,
// or is an error of its own.
func FuzzAnswer(f *testing.F) {
	for _, b := range [][]byte{
		{0, 7}, {61, 0}, {61}, {}, {24, 66, 61}, {24 + 45, 66, 61, 61, 61}, {4 + 5*4, 56, 61, 0, 100, 7, 'a', 'b'},
		{4 + 5*2, 66, 32, 'h', 'o', 'l', 'd', '\n'}, {19, 51, 52, 53},
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, _ := fuzzedReply(b, 3)
		tk := &driver.Ticket{ID: "a:1", Name: "n", Limit: 1, Units: 1, TTL: time.Second}
		p, err := ReadStatus(&r, tk)
		switch {
		case err != nil:
			if !errors.Is(err, ErrAnswer) && driver.ClassOf(err) != driver.Refused { // or a record that is none
				t.Errorf("%v", err)
			}
		case p.Err != nil:
		case p.State == driver.Held && p.Token > 0 && p.Lease == tk.TTL:
		case p.State == driver.Waiting && p.Ahead >= 0 && p.Recheck >= 0:
		case p.State == driver.Gone:
		default:
			t.Errorf("%+v", p)
		}
		if p := ReadLeft(&r, nil); p.Err == nil && p.State != driver.Gone && p.State != driver.Held && p.State != driver.Waiting {
			t.Errorf("left: %+v", p)
		}
		_, _ = ReadSnapshot(&r)
		_, _, _ = ReadScan(&r)
		_, _, _ = ReadSlots(&r)
	})
}
