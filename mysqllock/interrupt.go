package mysqllock

import (
	"regexp"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// wakeupName matches the names of wake-up connections' locks. They are read
// from rows that other clients wrote, and become part of the text of
// statements: MySQL does not prepare KILL with a placeholder (6413, since 9.7),
// and a pool that was passed to New may prepare every statement with one.
var wakeupName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`) })

const interruptPrefix = "KILL QUERY IS_USED_LOCK('"

// interruptText returns the statement that interrupts the connection that holds
// the named lock.
func interruptText(name string) string { return interruptPrefix + name + "')" }

// interruptStmt returns interruptText as a statement, to be sent after the
// commit. It returns false for a name that no driver takes.
func interruptStmt(name string) (s *sqlqueue.Stmt, ok bool) {
	if !wakeupName().MatchString(name) {
		return nil, false
	}
	return &sqlqueue.Stmt{Text: &sqlqueue.Text{SQL: interruptText(name), Writes: true}}, true
}

// isInterrupt reports whether a statement interrupts a wake-up connection.
func isInterrupt(s *sqlqueue.Stmt) bool { return strings.HasPrefix(s.Text.SQL, interruptPrefix) }
