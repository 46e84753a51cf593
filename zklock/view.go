package zklock

import (
	"slices"
	"strings"
)

// A view is the result of one listing of a queue.
type view struct {
	nodes []node // in order of their places
	bases []base // minimum tokens, see token.go
	alien string // a child that is not a lock's, "" for none
	pzxid int64  // the last transaction that made or deleted a child
}

// viewOf parses a listing.
func viewOf(children []string) view {
	v := view{nodes: make([]node, 0, len(children))}
	for _, c := range children {
		if b, ok := parseBase(c); ok {
			v.bases = append(v.bases, b)
		} else if n, ok := parseNode(c); ok {
			v.nodes = append(v.nodes, n)
		} else {
			v.alien = c
		}
	}
	slices.SortFunc(v.nodes, func(a, b node) int {
		switch {
		case before(a.seq, b.seq):
			return -1
		case before(b.seq, a.seq):
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return v
}

// check refuses a queue with a child that is not a lock's. Such a child may
// stand for a foreign lock that excludes these tickets, as the children of
// Curator's and kazoo's semaphores do.
func (v *view) check(queue string) error {
	if v.alien == "" {
		return nil
	}
	return foreign(queue+"/"+v.alien, "is no lock's node, and lies where the tickets of a lock go")
}

// ofOwner returns the first node of an owner, except the node with that UUID.
func (v *view) ofOwner(tag, except string) (node, bool) {
	for _, n := range v.nodes {
		if n.owner == tag && n.uuid != except {
			return n, true
		}
	}
	return node{}, false
}

// ofUUID returns the nodes of a ticket; after failures there may be several.
func (v *view) ofUUID(uuid string) []node {
	var ns []node
	for _, n := range v.nodes {
		if n.uuid == uuid {
			ns = append(ns, n)
		}
	}
	return ns
}
