// Package redislock keeps queues of tickets in Redis or Valkey of version 6.2
// or later, by scripts and publish/subscribe alone: in one server ([Open],
// [New]), in the primary that Sentinels watch ([OpenSentinel]), or in a
// cluster ([OpenCluster]). Package redislock/goredis does the same on a client
// of go-redis that the user opened.
//
// # The layout in the server
//
// The queue of a name N has up to four keys, and its mark one. K is the prefix
// followed by N, byte for byte.
//
//	K                     hash: the holders, see below
//	holdfast_queue:{K}    list: the places that wait, in order
//	holdfast_tickets:{K}  hash: the tickets that wait, and others, see below
//	holdfast_due:{K}      sorted set: tickets that hold, and tombstones, by the
//	                      server time in milliseconds at which they are dropped
//	holdfast_done:{K}     hash: the mark of the name, see below
//
// The mark that SetMark keeps has the fields token, of 20 decimal digits, and
// value. It is no part of the queue, and expires 400 days after it was last set.
//
// Two more keys never expire: all queues of a server share them, and in a
// cluster all queues of a slot. holdfast_mark, or holdfast_mark:{n}, is a
// string: the highest token that was granted by the clock. Every grant is
// above it, so that an idle queue needs no key of its own. holdfast_ahead, or
// holdfast_ahead:{n}, is a sorted set: it has, by K, the last token of each
// queue that a minimum token has taken above the mark. It exists only after
// such a grant. Once the mark is past a queue's token, one of the next such
// grants removes the queue from it.
//
// A mutex held by an unnamed ticket is kept in K alone, with K's own expiry.
// The field <id> has the value 1, as in a lock of Redisson, whose owner fields
// look like ticket ids. The field <0x01><id>, which Redisson ignores, has the
// token, the channel and the metadata, each on a line of its own. So an
// uncontended join writes two keys and its release one. The field mode has the
// value holdfast: Redisson's read/write locks look at that field alone, and
// wait if they do not know the mode. A hold without the field is of a version
// that did not write it.
//
// Every other hold has a field in K too, named after the owner, or after the
// ticket if there is no owner (an owner called mode is <0x01>mode). Its value
// is the number of the owner's tickets where the limit is 1, and the units
// otherwise. Beside those fields and mode, <0x01>l is the queue's limit and
// <0x01>u the units held. Such tickets are also in the hash of the tickets.
//
// The hash of the tickets has, for each ticket, its record in the field <id>
// (internal/wire/record.go has the form), and in <0x02><id> the time at which the ticket is
// dropped unless it is renewed. For each place of a named owner, <0x01><owner>
// lists the tickets, and the place is called <0x01><owner> in the list. A
// tombstone is a ticket with the record "1x", and <0x03><id> in the sorted
// set.
//
// The names of the helper keys keep a queue in one slot of a cluster. They
// follow Redisson's rule, made injective: K without braces goes in braces; K
// with a hash tag of its own follows a second colon ("holdfast_queue::K"),
// since the tag determines the slot; and any other K with braces follows a
// number that falls in its slot ("holdfast_queue:#{n}K"). A K that itself
// begins with "holdfast_", which needs an odd prefix, is written
// "holdfast_line:K".
//
// A key that nobody has written yet is holdfast_layout: a version of Holdfast that cannot
// share a server with this one will write a number above 1 there, and this one refuses the
// server when it opens.
//
// Every key of a queue expires: helper keys at most twice the longest TTL
// after the last renewal, or five minutes after an id was tombstoned. Three
// kinds of keys stay: the mark, the tokens ahead of it, and holdfast_guard,
// the mark of the restart guard, which tells whether the data outlived a
// restart.
//
// The deadline of a waiter is checked when its turn comes, so the waiters'
// deadlines need no order of their own. Several places may hold together, and
// any of them may end first: holders and tombstones are sorted by time.
//
// # How a waiter is woken
//
// Each driver subscribes to one channel of its own, "holdfast_push:<random>".
// The script that frees a lock grants it to the next living ticket and
// publishes to that ticket's channel: one message wakes one client. PUBLISH
// returns the number of listeners. If there are none, the ticket keeps its
// place and the next one is tried; the ticket's own renewal or recheck takes
// the grant later. A driver that lost its subscription renews all its waiters.
//
// In a cluster before Redis 7 a message goes to all nodes, and PUBLISH does
// not return the number of listeners. There, tickets have an empty channel:
// they are granted in their turn without a message, and their driver polls,
// the first waiter every 20 ms, the n-th every n × 20 ms, each at least every
// 500 ms. While such a cluster is upgraded to Redis 7, a driver that found an
// older node polls until it is opened anew; such drivers and others hand locks
// to each other.
//
// # Connections
//
// The client's shared connections carry joins and leaves. Renewals, and the
// requests of operators, travel on a connection of their own, so that neither
// a slow request of the program nor a burst of joins delays them. The
// subscription has a third connection.
//
// A connection of rueidis answers a lone caller fastest as long as it has
// never had two callers at once, nor a context that can be cancelled. So a
// lone request is sent without its context. On the connections that [Open]
// made, the connection itself looks after the context when an answer takes
// long. With a client of the user's, and whenever the server was found slow, a
// goroutine of the driver waits for the answer while the caller watches the
// context. From the first time that two requests meet, calls go straight to
// the client, which then joins requests in one write.
//
// # Rights
//
// A user for this driver needs, as ACL SETUSER takes it:
//
//	+evalsha +eval +publish +subscribe +time +info +ping
//	+exists +del +pexpire +pttl +get +set
//	+hlen +hget +hmget +hgetall +hset +hdel +hexists +hrandfield
//	+rpush +lpop +lrem +lindex +lrange +lpos
//	+zadd +zrem +zrange +zrangebyscore +zscore
//	~PREFIX* ~holdfast_* &holdfast_push:*
//
// +info is for reading the eviction policy; without +info the policy is
// unknown. +ping is for the client, which sends PING now and then on an idle
// connection; if PING is refused, the refusals fill the server's log. On a
// server before 7.0 the user also needs +hello, and resetchannels before the
// channels. Besides, +select is for a database other than 0, +scan for Names,
// +client for Identity, +script|load for the restart guard, +wait for
// confirmed grants, and +config|get for Check, which reports each setting that
// it could not read.
//
// # Rights in a cluster
//
// In a cluster, a user needs on every node:
//
//	+evalsha +eval +spublish +ssubscribe +time +info +ping +cluster|slots +asking
//	+exists +del +pexpire +pttl +get +set
//	+hlen +hget +hmget +hgetall +hset +hdel +hexists +hrandfield
//	+rpush +lpop +lrem +lindex +lrange +lpos
//	+zadd +zrem +zrange +zrangebyscore +zscore
//	~PREFIX* ~holdfast_* &holdfast_push:*
//
// +asking is for holds whose slot is being moved. The other rights are as above.
// Redis before 7 has no +spublish and +ssubscribe, and does not need them.
//
// # Rights at a Sentinel
//
// Users of Sentinels need there, besides what their client needs to log in:
//
//	+sentinel|get-master-addr-by-name +subscribe +ping &+switch-master
//
// # Clusters
//
// A queue has a slot, and one more key, "holdfast_none:{K}", which never exists.
// (Scripts send requests without effect about it, so that a missing right shows
// before they have changed anything; on a single server its name is
// "holdfast_none".) While a slot is moved, Redis puts off a request if one of
// its keys is not there; without that key it would run a request whose keys are
// all there, and fail it halfway, at a key that the request itself removed. The
// holders of a mutex are renewed by its one key, which is served where it is, so
// that they outlast a move of any length.
//
// The channel of a client in a slot is "holdfast_push:<random>{n}", where n is
// a number that falls in the slot.
package redislock
