// Package redislock keeps lines of tickets in Redis or Valkey of version 6.2 or
// later, by scripts and publish/subscribe alone: in one server ([Open], [New]),
// in the primary that Sentinels watch ([OpenSentinel]), or in a cluster
// ([OpenCluster]). Package redislock/goredis does so on a client of the user's
// of another library.
//
// # What is in the server
//
// A line of the name N has up to five keys. K is the prefix followed by N, byte
// for byte.
//
//	K                     hash: who holds, see below
//	holdfast_queue:{K}    list: the places that wait, in order
//	holdfast_tickets:{K}  hash: the tickets that wait, and others, see below
//	holdfast_due:{K}      sorted set: tickets that hold, and tombstones, by the
//	                      server time in milliseconds at which they are dropped
//	holdfast_token:{K}    string: the last token
//
// A mutex held by an unnamed ticket is kept in K alone, with K's own expiry:
// the field <id> has the value 1, as in a lock of Redisson, whose owner fields
// look like ticket ids; and the field <0x01><id>, which Redisson does not mind,
// has the token, the channel and the metadata, a line each. So an uncontended
// join writes two keys and its release one.
//
// Every other hold has a field in K too, named as the owner or else as the
// ticket; its value is the number of the owner's tickets where the limit is 1,
// and the units otherwise. Beside those, <0x01>l is the line's limit and
// <0x01>u the units held. Such tickets are also in the hash of the tickets.
//
// That hash has, for each ticket, its record in the field <id> (record.go says
// in which form) and in <0x02><id> the time at which it is dropped unless it is
// renewed. For each place of a named owner, <0x01><owner> lists the tickets,
// and the place is called <0x01><owner> in the queue. A tombstone is a ticket
// with the record "1x", and <0x03><id> in the sorted set.
//
// The names of the helpers keep a line in one slot of a cluster. They follow
// Redisson's rule, made injective: K without braces goes in braces; K with a
// hash tag of its own follows a second colon ("holdfast_queue::K"), since it
// brings its slot along; and any other K with braces follows a number that
// falls in its slot ("holdfast_queue:#{n}K"). A K that itself begins with
// "holdfast_", which needs an odd prefix, is written "holdfast_line:K".
//
// Every key expires: helpers at most twice the longest TTL after the last
// renewal, or five minutes after an id was tombstoned; a token counter an hour
// later than it is ahead of the clock, by which time the clock alone makes
// greater tokens. Only the mark of the restart guard, holdfast_guard, stays: it
// tells whether the data outlived a restart.
//
// Deadlines of those who wait are looked at when their turn comes, and so need
// no order of their own. Several places may hold together, and any of them may
// end first: those, and the tombstones, are sorted by time.
//
// # How a waiter is woken
//
// Each driver subscribes to one channel of its own, "holdfast_push:<random>".
// The script that frees a line grants it to the next living ticket and
// publishes to that ticket's channel: one message, one client woken. PUBLISH
// tells how many listen; when nobody does, the ticket keeps its place and the
// next one is tried, and the ticket's own renewal or recheck takes the grant
// later. A driver that lost its subscription renews all that wait.
//
// In a cluster before Redis 7 a message goes to all nodes, and PUBLISH does not
// tell who listens. There tickets have an empty channel: they are granted in
// their turn without a message, and their driver asks for them, the first who
// waits every 20 ms, the n-th every n × 20 ms, at most every 500 ms. While such a
// cluster is brought to Redis 7, a driver that found a node of before asks until
// it is opened anew; others hand over to it, and it to them.
//
// # Connections
//
// The client's shared connections carry joins and leaves. Renewals, and what
// people ask for, travel on a connection of their own, so that neither a slow
// request of the program nor a crowd of joins delays them; the subscription has
// another.
//
// A connection of rueidis answers a lone caller fastest as long as it has never
// had two callers at once nor a context that can be cancelled. So a lone
// request is sent without its context, and on the connections that [Open] made
// the connection itself looks after the context when an answer takes long; with
// a client of the user's, and whenever the server was found slow, a goroutine
// of the driver waits for the answer while the caller watches the context. From
// the first time that two requests meet, calls go straight to the client, which
// then joins requests in one write.
//
// # Rights
//
// A user for this driver needs, as ACL SETUSER takes it:
//
//	+evalsha +eval +publish +subscribe +time +info +ping
//	+exists +del +pexpire +pttl +get +set
//	+hlen +hget +hmget +hgetall +hset +hdel +hexists +hrandfield
//	+rpush +lpop +lrem +lindex +lrange +lpos
//	+zadd +zrem +zrange +zrangebyscore
//	~PREFIX* ~holdfast_* &holdfast_push:*
//
// +info is for the look at the eviction policy; without it, nothing is known of
// that. +ping is what the client sends now and then where nothing else is said;
// refused, it fills the server's log. On a server before 7.0 it also needs +hello,
// and resetchannels before the channels. Besides, +select is for a database other
// than 0,
// +scan for Names, +client for Identity, +script|load for the restart guard,
// +wait for confirmed grants, and +config|get for Check, which says so where it
// could not look.
//
// # Rights in a cluster
//
// There, on every node, a user needs:
//
//	+evalsha +eval +spublish +ssubscribe +time +info +ping +cluster|slots +asking
//	+exists +del +pexpire +pttl +get +set
//	+hlen +hget +hmget +hgetall +hset +hdel +hexists +hrandfield
//	+rpush +lpop +lrem +lindex +lrange +lpos
//	+zadd +zrem +zrange +zrangebyscore
//	~PREFIX* ~holdfast_* &holdfast_push:*
//
// +asking is for holds whose slot is being moved. The others are as above. Before
// Redis 7, +spublish and +ssubscribe do not exist, and are not needed.
//
// # Rights at a Sentinel
//
// Users of Sentinels need there, besides what their client needs to log in:
//
//	+sentinel|get-master-addr-by-name +subscribe +ping &+switch-master
//
// # Clusters
//
// A line has a slot, and one more key, "holdfast_none:{K}", which never exists
// and which no script touches. While a slot is moved, Redis runs no request one
// of whose keys is not there, but puts it off; without that key it would run
// one whose keys are all there, and fail it halfway, at a key that it made
// vanish itself. Those who hold a mutex are renewed by its one key, which is
// served where it is, so that they outlast a move of any length.
//
// The channel of a client in a slot is "holdfast_push:<random>{n}", where n is
// a number that falls in the slot.
package redislock
