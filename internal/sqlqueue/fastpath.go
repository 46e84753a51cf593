package sqlqueue

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// fastPath decides about those of todo that it can on the fast path, with one
// statement for up to Dialect.Batch tickets. It calls found with the token of
// each ticket that it decided.
func (b *batch) fastPath(ctx context.Context, s *Queues, db DB, texts *fastTexts, todo []int, found func(i int, token int64)) {
	for chunk := range slices.Chunk(todo, s.d.batch()) {
		n := sizeFor(len(chunk))
		at := make(map[string]int, len(chunk))
		var keys, ids []any
		for _, i := range chunk {
			at[string(b.keys[i])] = i
			keys, ids = append(keys, b.keys[i]), append(ids, b.refs[i].ID)
		}
		args := append(filled(keys, sizes[n]), filled(ids, sizes[n])...)
		var changed []any
		row := func(scan func(...any) error) error {
			var key []byte
			var token int64
			err := scan(&key, &token)
			if i, ok := at[string(key)]; ok {
				found(i, token)
				changed = append(changed, key)
			}
			return err
		}
		var err error
		switch {
		case !s.d.NoReturning:
			stmt := texts.once[n].with(args...)
			stmt.Row = row
			err = db.Auto(ctx, stmt)
		case s.d.Note != "" && len(chunk) == 1:
			stmt := texts.single.with(args...)
			if err = db.Auto(ctx, stmt); err == nil && stmt.Last > 0 {
				found(chunk[0], stmt.Last)
			}
		default:
			err = db.Tx(ctx, func(tx Tx) ([]*Stmt, error) {
				changed = nil
				for _, i := range chunk {
					b.done[i] = false // set by a run that was rolled back
				}
				find := texts.find[n].with(args...)
				find.Row = row
				if err := tx.Do(ctx, find); err != nil || len(changed) == 0 {
					return nil, err
				}
				n := sizeFor(len(changed))
				return []*Stmt{texts.change[n].with(filled(changed, sizes[n])...)}, nil
			})
		}
		if err != nil {
			for _, i := range chunk {
				b.setStatus(i, driver.Status{Err: err})
			}
		}
	}
}

// sizeFor returns the index of the smallest size that is at least n.
func sizeFor(n int) int {
	i := 0
	for sizes[i] < n {
		i++
	}
	return i
}

// filled appends copies of the first of args until there are n.
func filled(args []any, n int) []any {
	for len(args) < n {
		args = append(args, args[0])
	}
	return args
}
