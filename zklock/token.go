package zklock

import (
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// A base is the amount that a queue's tickets add to their zxids. A token is
// the zxid of the transaction that created the ticket's node, plus the base of
// its queue. The base is 0 unless a ticket's minimum token was above its zxid.
//
// Otherwise the base is a persistent node of the queue,
// "base-<decimal>-<number>". The transaction that makes that ticket's node
// makes the base just before it. A base counts for all tickets with greater
// numbers. A later ticket sees the base in the listing that each join makes.
type base struct {
	seq  int32
	plus uint64
}

func baseName(plus uint64) string { return baseMark + strconv.FormatUint(plus, 10) + "-" }

func parseBase(name string) (b base, ok bool) {
	rest, ok := strings.CutPrefix(name, baseMark)
	if !ok {
		return b, false
	}
	digits, seq, _ := strings.Cut(rest, "-")
	var err error
	if b.plus, err = strconv.ParseUint(digits, 10, 64); err != nil {
		return b, false
	}
	b.seq, ok = parseSeq(seq)
	return b, ok
}

// base returns the amount that tickets of this number add to their zxid.
func (v *view) base(seq int32) uint64 {
	plus := uint64(0)
	for _, b := range v.bases {
		if before(b.seq, seq) {
			plus = max(plus, b.plus)
		}
	}
	return plus
}

// tokenOf returns the token of a node's ticket. A ticket that shares its owner's place
// has the token of that place in its node.
func (v *view) tokenOf(n node, d nodeData, stat *zk.Stat) uint64 {
	if d.Token != 0 {
		return d.Token
	}
	return uint64(stat.Czxid) + v.base(n.seq)
}

// plusFor returns the base with which the tokens of zxids above low reach
// floor, the minimum token; 0 if they reach it already.
func (v *view) plusFor(minToken uint64, low int64) uint64 {
	plus := uint64(0)
	for _, b := range v.bases {
		plus = max(plus, b.plus)
	}
	if uint64(low)+plus >= minToken {
		return 0
	}
	return minToken - uint64(low)
}
