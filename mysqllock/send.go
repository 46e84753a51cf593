package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// item is one statement to be sent.
type item struct {
	text string
	args []any
	rows bool // its answer has rows, perhaps none
	row  func(scan func(...any) error) error
	stmt *sqlqueue.Stmt // receives the id in the answer, if the statement is sent alone
}

func itemOf(s *sqlqueue.Stmt) *item {
	it := &item{text: s.Text.SQL, rows: !s.Text.Writes, row: s.Row, stmt: s}
	for _, arg := range s.Values() {
		if text, ok := arg.(string); ok {
			arg = []byte(text) // no character set converts bytes
		}
		it.args = append(it.args, arg)
	}
	return it
}

// asSent returns the text and the arguments as they are sent.
func (it *item) asSent(m *sendMode) (text string, args []any) {
	if !m.hex {
		return it.text, it.args
	}
	pieces := strings.Split(it.text, "?")
	var b strings.Builder
	for i, arg := range it.args {
		b.WriteString(pieces[i])
		if bytes, ok := arg.([]byte); ok {
			fmt.Fprintf(&b, "X'%X'", bytes)
		} else {
			b.WriteByte('?')
			args = append(args, arg)
		}
	}
	b.WriteString(strings.Join(pieces[len(it.args):], "?"))
	return b.String(), args
}

// run sends statements and reads their answers, in one packet if
// sendMode.together says so, and otherwise one after the other. Commits says
// that the transaction may end with them: if an answer is missing, the outcome
// is then unknown.
func (c *conn) run(ctx context.Context, commits bool, items ...*item) error {
	if err := driver.Before(ctx); err != nil {
		return err
	}
	var err error
	var refusal error
	switch {
	case len(items) == 1:
		err = c.runOne(ctx, items[0], &refusal)
	case c.mode.together:
		err = c.runTogether(ctx, items, &refusal)
	default:
		for i := 0; err == nil && refusal == nil && i < len(items); i++ {
			err = c.runOne(ctx, items[i], &refusal)
		}
	}
	if err != nil {
		return classify(ctx, err, commits)
	}
	return driver.Wrap(driver.Refused, refusal)
}

// runOne runs a statement by itself.
func (c *conn) runOne(ctx context.Context, it *item, refusal *error) error {
	text, args := it.asSent(c.mode)
	if !it.rows {
		result, err := c.ExecContext(ctx, text, args...)
		if err == nil && it.stmt != nil {
			it.stmt.Last, err = result.LastInsertId()
		}
		return err
	}
	rows, err := c.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	read(rows, it, refusal)
	return rows.Err()
}

// runTogether runs statements in one packet. Only statements with rows have an
// answer that the client library shows.
func (c *conn) runTogether(ctx context.Context, items []*item, refusal *error) error {
	var texts []string
	var args []any
	var answers []*item
	for _, it := range items {
		text, some := it.asSent(c.mode)
		texts = append(texts, text)
		args = append(args, some...)
		if it.rows {
			answers = append(answers, it)
		}
	}
	text := strings.Join(texts, "; ")
	if len(answers) == 0 {
		result, err := c.ExecContext(ctx, text, args...)
		if last := items[len(items)-1]; err == nil && last.stmt != nil {
			last.stmt.Last, err = result.LastInsertId()
		}
		return err
	}
	rows, err := c.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for _, it := range answers {
		read(rows, it, refusal)
		if !rows.NextResultSet() {
			break
		}
	}
	return rows.Err()
}

// read passes on the rows of one answer, up to the first that is refused.
func read(rows *sql.Rows, it *item, refusal *error) {
	for rows.Next() {
		if it.row != nil && *refusal == nil {
			*refusal = it.row(rows.Scan)
		}
	}
}
