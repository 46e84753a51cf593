package stock

import (
	"context"
	"fmt"
	"strconv"
)

// A shard keeps a part of a product's units, and a book of the sales that have
// their home there. Each request below is one step at one shard. An operation
// of several steps can stop after any of them. All requests can be repeated:
// one whose answer was lost is sent again.
//
// Units leave a shard only by a sale or by a transfer. A transfer has a number,
// and at most one is under way from one shard to another: pull takes the units
// out of the first shard and notes them there, accept adds them to the second
// if its number is the next, and clear removes the note. Any client that finds
// a note can finish the transfer, at any time. Finishing it again does no harm.

// shard names one part of a product.
type shard struct {
	sku    string
	i      int // its number within the product
	server int // its server: an index of the list given to Open
}

// backend keeps shards and directories. The error of a request has a class, see
// package driver.
type backend interface {
	// servers returns the number of places for shards.
	servers() int
	// directory returns the text that swap wrote for a product, nil if there is
	// none, and the server's time in milliseconds.
	directory(ctx context.Context, sku string) (text []byte, now int64, err error)
	// swap writes to, if the text is still from.
	swap(ctx context.Context, sku string, from, to []byte) (bool, error)
	ask(ctx context.Context, at shard, q request) (answer, error)
	// sell carries out usual sales of one shard and one epoch in one step, and
	// sets the answer of each: isApart if it has to be asked for alone, since it
	// was not carried out here. If it returns an error, that is the error of all.
	sell(ctx context.Context, at shard, sales []*batchedSale) error
	// batching returns the bounds of a batch.
	batching() batchBounds
	close()
}

// request is one step at a shard.
type request struct {
	op    op
	sale  string
	epoch int64 // of the directory that the client knows
	units int64
	keep  int64  // how long a receipt is kept, ms
	lease int64  // of a reservation, ms; 0: sell at once
	peer  int    // the other shard of a transfer
	seq   int64  // the number of a transfer
	in    moved  // sell: units to accept before
	flag  bool   // pull: all or nothing; settle: this is the home; place: fill the shard
	must  bool   // place: the shard existed, and is not created again
	dir   []byte // place: the directory of the epoch
	try   bool   // place: answer as usual, but change nothing
}

// moved is a transfer that has been taken out of a shard.
type moved struct {
	from  int
	seq   int64
	units int64
}

// isUsual reports whether a request is one that can share a call with others: a
// sale that needs only the units of its home.
func (q *request) isUsual() bool { return q.op == opSell && q.lease == 0 && q.in.seq == 0 }

// op is the kind of a request.
type op string

const (
	opSell    op = "sell"    // units to a sale; or, with a lease, reserved for it
	opAdd     op = "add"     // units to the shard, once for each sale id
	opFind    op = "find"    // the receipt of a sale
	opConfirm op = "confirm" // a reservation becomes a sale
	opCancel  op = "cancel"  // a reservation ends, or an unknown id is barred
	opReturn  op = "return"  // a sale's units come back
	opPull    op = "pull"    // units out of the shard, for peer
	opAccept  op = "accept"  // units into the shard, from peer
	opClear   op = "clear"   // the note of a transfer to peer
	opLook    op = "look"    // everything about units
	opPlace   op = "place"   // the shard is created, filled, and told the epoch
)

// status is the first word of an answer.
type status string

const (
	isDone   status = "done"   // with the receipt
	isOld    status = "old"    // with the receipt that exists already
	isNone   status = "none"   // there is no receipt
	isShort  status = "short"  // there are not enough units
	isMoved  status = "moved"  // the shard has the directory of another epoch
	isPlaced status = "placed" // with its former state
	isAbsent status = "absent" // there is no such shard
	isTook   status = "took"   // pull: a transfer, new or still under way
	isApart  status = "apart"  // the sale was not carried out in its batch
)

// answer is the result of a request.
type answer struct {
	status  status
	receipt Receipt
	free    int64 // isShort
	transit int64 // isShort: units in notes, accepted or not
	move    moved // isTook
	look    shardState
	epoch   int64  // isMoved: of the shard; isPlaced: before, 0 for none
	ends    int64  // isPlaced: the end of the last reservation, or now; ms
	dir     []byte // isPlaced: the directory of the shard's epoch, unless that was lower

	// doubt means that an earlier try of the request had no answer. It may
	// still be carried out, after this answer.
	doubt bool
}

// shardState is the state of a shard at one moment.
type shardState struct {
	epoch                        int64
	version                      int64 // grows with every change of the units
	free, held, sold, back, more int64 // sold, back and more only grow
	out                          map[int]moved
	in                           map[int]int64 // number of the last transfer accepted
}

// receiptOf parses a receipt as shards write it: a letter and a number.
func receiptOf(text string) (Receipt, error) {
	if len(text) < 2 {
		return Receipt{}, fmt.Errorf("a receipt is %q", text)
	}
	n, err := strconv.ParseInt(text[1:], 10, 64)
	return Receipt{State: State(text[:1]), Units: n}, err
}
