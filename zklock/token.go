package zklock

import (
	"strconv"
	"strings"
)

// A token is the zxid of the transaction that created a ticket's node, plus
// the base of its line, which is 0 unless a ticket had a floor above its zxid.
// Then a base is a persistent node of the line, "base-<decimal>-<number>",
// made in the same transaction as that ticket and just before it; it counts
// for all tickets with greater numbers. Who joins later sees it in the listing
// that each join makes.
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

// base is what tickets of this number add to their zxid.
func (v *view) base(seq int32) uint64 {
	plus := uint64(0)
	for _, b := range v.bases {
		if before(b.seq, seq) {
			plus = max(plus, b.plus)
		}
	}
	return plus
}

// plusFor is the base that makes the tokens of zxids above low reach a floor;
// 0 when they do already.
func (v *view) plusFor(floor uint64, low int64) uint64 {
	plus := uint64(0)
	for _, b := range v.bases {
		plus = max(plus, b.plus)
	}
	if uint64(low)+plus >= floor {
		return 0
	}
	return floor - uint64(low)
}
