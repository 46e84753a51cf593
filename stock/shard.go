package stock

import (
	"context"
	"fmt"
	"strconv"
)

// A shard is where a part of a product's units is kept, with a book of the sales
// that have it as their home. Each request below is one step at one shard, and
// everything that is made of several is built so that it can stop after any of
// them. All may be repeated: a request whose answer was lost is sent again.
//
// Units never leave a shard but by a sale or by a transfer. A transfer has a
// number, and there is at most one under way from one shard to another: pull
// takes the units out of the first and notes them there, accept puts them into
// the second if its number is the next, clear ends the note. Whoever finds a
// note can finish the transfer, at any time, and does no harm if it is finished.

// shard names one part of a product.
type shard struct {
	sku    string
	i      int // its number within the product
	server int // where it is, by its place in the list given to Open
}

// backend keeps shards and directories. An error of a request has a class, see
// package driver.
type backend interface {
	// servers is how many places there are for shards.
	servers() int
	// directory returns what swap has written for a product, nil if nothing, and
	// the time of the server in milliseconds.
	directory(ctx context.Context, sku string) (text []byte, now int64, err error)
	// swap writes to, if there is what from says.
	swap(ctx context.Context, sku string, from, to []byte) (bool, error)
	ask(ctx context.Context, at shard, q request) (answer, error)
	close()
}

// request is one step at a shard.
type request struct {
	op    op
	sale  string
	epoch int64 // of the directory that the client goes by; sell, settle, place
	units int64
	keep  int64 // how long a receipt is kept, ms
	lease int64 // of a reservation, ms; 0: sell at once
	peer  int   // the other shard of a transfer
	seq   int64 // the number of a transfer
	in    moved // sell: units to accept before
	flag  bool  // pull: all or nothing; settle: this is the home; place: fill it
}

// moved is a transfer that has been taken out of a shard.
type moved struct {
	from  int
	seq   int64
	units int64
}

// op is what a request does.
type op string

const (
	opSell    op = "sell"    // units to a sale; or, with a lease, reserved for it
	opAdd     op = "add"     // units to the shard, once for each sale id
	opFind    op = "find"    // the receipt of a sale
	opConfirm op = "confirm" // a reservation becomes a sale
	opCancel  op = "cancel"  // a reservation ends, or the id of no sale is barred
	opReturn  op = "return"  // a sale's units come back
	opPull    op = "pull"    // units out of the shard, for peer
	opAccept  op = "accept"  // units into the shard, from peer
	opClear   op = "clear"   // the note of a transfer to peer
	opLook    op = "look"    // everything about units
	opPlace   op = "place"   // the shard is made, filled, and told the epoch
)

// status is how an answer begins.
type status string

const (
	isDone   status = "done"   // with the receipt
	isOld    status = "old"    // there is a receipt already, which it has
	isNone   status = "none"   // there is no receipt
	isShort  status = "short"  // there are not enough units
	isMoved  status = "moved"  // the directory is out of date
	isAbsent status = "absent" // there is no such shard
	isTook   status = "took"   // pull: a transfer, new or still under way
)

// answer is what a request found or did.
type answer struct {
	status  status
	receipt Receipt
	free    int64 // isShort
	transit int64 // isShort: units in notes, accepted or not
	move    moved // isTook
	look    look

	// doubt says that an earlier try of the request was not answered. It may
	// yet be carried out, after this answer.
	doubt bool
}

// look is all that a shard has, at one moment.
type look struct {
	version                      int64 // grows with every change
	free, held, sold, back, more int64 // sold, back and more only grow
	out                          map[int]moved
	in                           map[int]int64 // number of the last transfer accepted
}

// receiptOf reads a receipt as shards write it: a letter and a number.
func receiptOf(text string) (Receipt, error) {
	if len(text) < 2 {
		return Receipt{}, fmt.Errorf("a receipt is %q", text)
	}
	n, err := strconv.ParseInt(text[1:], 10, 64)
	return Receipt{State: State(text[:1]), Units: n}, err
}
