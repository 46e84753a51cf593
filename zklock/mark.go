package zklock

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Marker = (*Driver)(nil)

// marksNode is the node of the marks, beside the queues. No encoded name looks
// like it.
const marksNode = "%marks"

// markVersion is the first line of a mark's node; the token is the second one, and
// the mark's value the rest.
const markVersion = "hf1\n"

func (t tree) markPath(name string) string {
	return t.s.d.base + "/" + marksNode + "/" + encodeName(name)
}

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	return request(ctx, d, func(s *session) (driver.Mark, error) {
		m, _, err := tree{s}.readMark(tree{s}.markPath(name))
		return m, err
	})
}

// SetMark implements [driver.Marker]. The mark that was read is replaced only if
// nobody has changed it since.
func (d *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	if err := driver.CheckMark(m); err != nil {
		return driver.Wrap(driver.Refused, err)
	}
	data := append([]byte(markVersion+strconv.FormatUint(m.Token, 10)+"\n"), m.Value...)
	_, err := request(ctx, d, func(s *session) (any, error) {
		return nil, tree{s}.setMark(tree{s}.markPath(name), m.Token, data)
	})
	return err
}

// noMark is the version of a node that does not exist.
const noMark int32 = -1

// readMark reads a mark and the version of its node. The server of a session may
// lag behind the one that confirmed the mark, so it catches up first.
func (t tree) readMark(path string) (m driver.Mark, version int32, err error) {
	if _, err := t.s.conn.Sync(t.s.d.syncPath()); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return m, noMark, classed("sync "+path, err)
	}
	data, stat, err := t.s.conn.Get(path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return m, noMark, nil
	case err != nil:
		return m, noMark, classed("read "+path, err)
	}
	rest, ours := strings.CutPrefix(string(data), markVersion)
	token, value, whole := strings.Cut(rest, "\n")
	if m.Token, err = strconv.ParseUint(token, 10, 64); !ours || !whole || err != nil {
		return m, noMark, foreign(path, "has a value that is no mark of Holdfast's")
	}
	m.Value = []byte(value)
	return m, stat.Version, nil
}

func (t tree) setMark(path string, token uint64, data []byte) error {
	const tries = 64
	for range tries {
		old, version, err := t.readMark(path)
		switch {
		case err != nil:
			return err
		case token < old.Token:
			return driver.ErrStaleMark
		case version == noMark:
			_, err = t.s.conn.Create(path, data, zk.FlagPersistent, t.s.d.acl)
		default:
			_, err = t.s.conn.Set(path, data, version)
		}
		switch {
		case err == nil:
			return nil
		case version == noMark && errors.Is(err, zk.ErrNoNode):
			if err := t.makeParents(t.s.d.base + "/" + marksNode); err != nil {
				return err
			}
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode):
		default:
			return classed("write "+path, err)
		}
	}
	return driver.Errorf(driver.NotDone, "write %s: gave up after %d attempts, the mark kept changing", path, tries)
}
