//go:build !unix

package sqlitelock

import (
	"errors"
	"io/fs"
	"os"
)

// The functions below have no use on this system: Open fails before it calls
// any.

func fileID(os.FileInfo) string    { return "" }
func unlinked(os.FileInfo) bool    { return false }
func writable(string) error        { return nil }
func linkCount(os.FileInfo) uint64 { return 1 }

func lockExclusive(*os.File) (bool, error) { return false, errors.ErrUnsupported }
func lockShared(*os.File) (bool, error)    { return false, errors.ErrUnsupported }

func giveTo(*os.File, os.FileInfo) {}

func openFolder(string) (*os.File, error)                         { return nil, errors.ErrUnsupported }
func openIn(*os.File, string, int, fs.FileMode) (*os.File, error) { return nil, errors.ErrUnsupported }
func removeIn(*os.File, string)                                   {}

const usersFlags = os.O_RDWR

const appendFlags = os.O_WRONLY | os.O_APPEND
