package stock

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

//go:embed lua/*.lua
var lua embed.FS

var (
	directoryScript = script("directory")
	sellScript      = script("quick", "shard", "sell")
	batchScript     = script("batch")
	settleScript    = script("shard", "settle")
	moveScript      = script("shard", "move")
)

func script(files ...string) *rueidis.Lua {
	var b strings.Builder
	for _, file := range files {
		text, err := lua.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // the files are embedded in the program
		}
		b.Write(text)
	}
	return rueidis.NewLuaScript(b.String())
}

// redisServers keeps shards on Redis or Valkey. Each place is a server, or a cluster
// that spreads its shards itself.
type redisServers struct {
	prefix  string
	clients []rueidis.Client
	own     bool // close closes the clients
	tags    sync.Map
}

// connect opens a client for each URL.
func connect(urls []string, prefix string) (*redisServers, error) {
	s := &redisServers{prefix: prefix, own: true}
	for i, text := range urls {
		opt, err := rueidis.ParseURL(text)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("stock: URL %d is not of the form redis://user:password@host:port/database%s", i+1, hint(err))
		}
		opt.DisableCache = true
		opt.ClientName = "holdfast-stock"
		opt.ClientSetInfo = rueidis.DisableClientSetInfo
		if opt.ConnWriteTimeout == 0 {
			opt.ConnWriteTimeout = answerLimit
		}
		c, err := rueidis.NewClient(opt)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("stock: open server %d: %w", i+1, classify(err))
		}
		s.clients = append(s.clients, c)
	}
	return s, nil
}

// hint returns what can be said about a bad URL. It leaves out the standard
// library's message, which may contain a password.
func hint(err error) string {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return ""
	}
	if strings.Contains(err.Error(), "scheme") {
		return "; its scheme is another"
	}
	return ""
}

func (s *redisServers) servers() int { return len(s.clients) }

func (s *redisServers) batching() batchBounds { return batchBounds{maxBatch, maxLinger} }

func (s *redisServers) close() {
	if !s.own {
		return
	}
	for _, c := range s.clients {
		c.Close()
	}
}

func (s *redisServers) directory(ctx context.Context, sku string) ([]byte, int64, error) {
	a, err := s.call(ctx, s.clients[0], directoryScript, []string{s.prefix + "dir:{" + escape(sku) + "}"}, nil)
	if err != nil {
		return nil, 0, err
	}
	now, err := a.number(1)
	return []byte(a.text(0)), now, err
}

func (s *redisServers) swap(ctx context.Context, sku string, from, to []byte) (bool, error) {
	a, err := s.call(ctx, s.clients[0], directoryScript, []string{s.prefix + "dir:{" + escape(sku) + "}"}, []string{string(from), string(to)})
	return a.text(0) == "1", err
}

func (s *redisServers) ask(ctx context.Context, at shard, q request) (answer, error) {
	tag := s.tag(at)
	keys := []string{s.prefix + "shard:" + tag, s.prefix + "held:" + tag, s.prefix + "due:" + tag}
	var run *rueidis.Lua
	var args []string
	switch q.op {
	case opSell, opAdd:
		run = sellScript
		args = []string{string(q.op), text(q.epoch), q.sale, text(q.units), text(q.keep), text(q.lease)}
		if q.in.seq != 0 {
			args = append(args, strconv.Itoa(q.in.from), text(q.in.seq), text(q.in.units))
		}
	case opPull:
		run, args = moveScript, []string{string(q.op), text(q.epoch), strconv.Itoa(q.peer), text(q.units), bit(q.flag), text(q.keep)}
	case opAccept:
		run, args = moveScript, []string{string(q.op), text(q.epoch), strconv.Itoa(q.in.from), text(q.in.seq), text(q.in.units)}
	case opClear:
		run, args = moveScript, []string{string(q.op), text(q.epoch), strconv.Itoa(q.peer), text(q.seq)}
	case opLook:
		run, args = moveScript, []string{string(q.op), text(q.epoch), text(q.keep)}
	case opPlace:
		run, args = moveScript, []string{string(q.op), text(q.epoch), text(q.units), bit(q.flag), bit(q.must), string(q.dir), bit(q.try)}
	default:
		run, args = settleScript, []string{string(q.op), text(q.epoch), q.sale, text(q.keep), bit(q.flag)}
	}
	if run != moveScript {
		keys = append(keys, s.prefix+"sale:"+tag+":"+q.sale)
	}
	a, err := s.call(ctx, s.clients[at.server], run, keys, args)
	if err != nil {
		return answer{}, err
	}
	return a.read()
}

func (s *redisServers) sell(ctx context.Context, at shard, sales []*batchedSale) error {
	tag := s.tag(at)
	keys, args := make([]string, 0, 2+len(sales)), make([]string, 0, 2+2*len(sales))
	keys = append(keys, s.prefix+"shard:"+tag, s.prefix+"held:"+tag)
	args = append(args, text(sales[0].epoch), text(sales[0].keep))
	receipts := s.prefix + "sale:" + tag + ":"
	for _, sale := range sales {
		keys = append(keys, receipts+sale.sale)
		args = append(args, sale.sale, text(sale.units))
	}
	a, err := s.call(ctx, s.clients[at.server], batchScript, keys, args)
	if err != nil {
		return err
	}
	if status(a.text(0)) != isDone {
		all, err := a.read()
		for _, sale := range sales {
			sale.answer = all
		}
		return err
	}
	for _, sale := range sales {
		sale.answer = answer{status: isDone, receipt: Receipt{Sold, sale.units}}
	}
	for i := 1; i < len(a); i++ {
		n, err := a[i].AsInt64()
		if err != nil || n < 0 || n >= int64(len(sales)) {
			return fmt.Errorf("an answer to %d sales has place %d, %w", len(sales), n, err)
		}
		sales[n].answer = answer{status: isApart}
	}
	return nil
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// reply is the result of a script.
type reply []rueidis.RedisMessage

func (s *redisServers) call(ctx context.Context, c rueidis.Client, run *rueidis.Lua, keys, args []string) (reply, error) {
	a, err := run.Exec(ctx, c, keys, args).ToArray()
	if err != nil {
		return nil, classify(err)
	}
	return a, nil
}

func (a reply) text(i int) string {
	if i >= len(a) {
		return ""
	}
	s, _ := a[i].ToString()
	return s
}

func (a reply) number(i int) (int64, error) {
	n, err := strconv.ParseInt(a.text(i), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("an answer has no number in place %d: %w", i, err)
	}
	return n, nil
}

func (a reply) read() (answer, error) {
	r := answer{status: status(a.text(0))}
	var err error
	switch r.status {
	case isDone, isOld:
		if len(a) == 1 {
			return r, nil
		}
		if a[1].IsArray() {
			r.look, err = readShardState(a[1])
			return r, err
		}
		r.receipt, err = receiptOf(a.text(1))
		return r, err
	case isShort:
		return r, errors.Join(put(&r.free)(a.number(1)), put(&r.transit)(a.number(2)))
	case isTook:
		return r, errors.Join(put(&r.move.seq)(a.number(1)), put(&r.move.units)(a.number(2)))
	case isMoved:
		return r, put(&r.epoch)(a.number(1))
	case isPlaced:
		r.dir = []byte(a.text(3))
		return r, errors.Join(put(&r.epoch)(a.number(1)), put(&r.ends)(a.number(2)))
	case isNone, isAbsent:
		return r, nil
	}
	return r, fmt.Errorf("an answer begins with %q", a.text(0))
}

func put(to *int64) func(int64, error) error {
	return func(n int64, err error) error {
		*to = n
		return err
	}
}

// readShardState parses the hash of a shard.
func readShardState(m rueidis.RedisMessage) (shardState, error) {
	l := shardState{out: map[int]moved{}, in: map[int]int64{}}
	fields, err := m.ToArray()
	if err != nil {
		return l, err
	}
	whole := map[string]*int64{"epoch": &l.epoch, "version": &l.version, "free": &l.free, "held": &l.held, "sold": &l.sold, "back": &l.back, "more": &l.more}
	for i := 0; i+1 < len(fields); i += 2 {
		name, value := reply(fields).text(i), reply(fields).text(i+1)
		kind, peer, _ := strings.Cut(name, ":")
		n, _ := strconv.Atoi(peer) // only out and in have a peer
		var err error
		switch {
		case whole[name] != nil:
			*whole[name], err = strconv.ParseInt(value, 10, 64)
		case kind == "in":
			l.in[n], err = strconv.ParseInt(value, 10, 64)
		case kind == "out":
			var out moved
			_, err = fmt.Sscanf(value, "%d %d", &out.seq, &out.units)
			l.out[n] = out
		}
		if err != nil {
			return l, fmt.Errorf("field %s of a shard is %q", name, value)
		}
	}
	return l, nil
}

// escape makes a text usable between braces, as the tag of a key.
var escape = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace

// tag returns the part of a shard's keys that determines their slot in a
// cluster. It is chosen so that the shards of a product are spread evenly over
// the slots, however many there are: their places follow the van der Corput
// sequence of base 3, shifted for each product.
func (s *redisServers) tag(at shard) string {
	if tag, ok := s.tags.Load(at); ok {
		return tag.(string)
	}
	const slots, slack = 16384, 40
	sum := sha256.Sum256([]byte(at.sku))
	place, digit := float64(binary.BigEndian.Uint32(sum[:]))/(1<<32), 1.0
	for i := at.i; i > 0; i /= 3 {
		digit /= 3
		place += float64(i%3) * digit
	}
	want := int(place*slots) % slots
	base := "{" + escape(at.sku) + "." + strconv.Itoa(at.i)
	tag := base + "}"
	for n := 0; n < 16*slots/slack; n++ {
		tag = base + "." + strconv.Itoa(n) + "}"
		if d := (slot(tag[1:len(tag)-1]) - want + slots) % slots; d < slack {
			break
		}
	}
	s.tags.Store(at, tag)
	return tag
}

// slot returns the slot of a tag in Redis Cluster: CRC16/XMODEM.
func slot(tag string) int {
	var crc uint16
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

// classify adds a class to the error of a request.
func classify(err error) error {
	if re, ok := errors.AsType[*rueidis.RedisError](err); ok {
		word, _, _ := strings.Cut(re.Error(), " ")
		switch word {
		case "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "BUSY", "NOREPLICAS", "MOVED", "ASK":
			return driver.Wrap(driver.Unavailable, err)
		}
		return driver.Wrap(driver.Refused, err)
	}
	if oe, ok := errors.AsType[*net.OpError](err); ok && oe.Op == "dial" {
		return driver.Wrap(driver.Unavailable, err)
	}
	if errors.Is(err, rueidis.ErrClosing) {
		return driver.Wrap(driver.Refused, err)
	}
	return driver.Wrap(driver.Unknown, err)
}
