package sqlitelock

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-go/holdfast/driver"
)

// errBusy means that another process is writing. It never leaves the package:
// the worker tries again as long as the request's context allows.
var errBusy = errors.New("another process is writing to the file")

// code returns SQLite's extended result code, 0 for other errors.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// classify adds a class to an error of SQLite. If the disk failed, a statement
// that commits may have taken effect.
func classify(err error, commits bool) error {
	if err == nil {
		return nil
	}
	class := driver.Unknown
	switch code(err) & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		return errBusy
	case lib.SQLITE_FULL:
		return driver.Errorf(driver.Unavailable, "the disk is full: %w", err)
	case lib.SQLITE_READONLY:
		return driver.Errorf(driver.Unavailable, "the file cannot be written: %w", err)
	case lib.SQLITE_CANTOPEN, lib.SQLITE_NOMEM, lib.SQLITE_PERM, lib.SQLITE_AUTH, lib.SQLITE_NOLFS:
		class = driver.Unavailable
	case lib.SQLITE_IOERR:
		if !commits {
			class = driver.Unavailable
		}
		if code(err) == lib.SQLITE_IOERR_SHMSIZE {
			return driver.Errorf(class, "the disk is full, or the -shm file beside the file cannot grow: %w", err)
		}
	case lib.SQLITE_CORRUPT:
		return driver.Errorf(driver.Refused, "the file is damaged: %w", err)
	case lib.SQLITE_NOTADB:
		return driver.Errorf(driver.Refused, "the file is not an SQLite database: %w", err)
	case lib.SQLITE_ERROR, lib.SQLITE_CONSTRAINT, lib.SQLITE_MISMATCH, lib.SQLITE_SCHEMA, lib.SQLITE_TOOBIG, lib.SQLITE_RANGE:
		return driver.Errorf(driver.Refused, "the file's tables are not those of this version: %w", err)
	}
	return driver.Wrap(class, fmt.Errorf("sqlite: %w", err))
}

// breaksConn reports whether the connection is useless after err.
func breaksConn(err error) bool {
	switch code(err) & 0xff {
	case lib.SQLITE_IOERR, lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB, lib.SQLITE_CANTOPEN, lib.SQLITE_MISUSE:
		return true
	}
	return false
}
