//go:build !unix

package sqlitelock

import "os"

// On systems without these, Open fails before any of them is used.

func fileID(os.FileInfo) string { return "" }
func unlinked(os.FileInfo) bool { return false }
func writable(string) error     { return nil }
func own(*os.File) bool         { return false }

const appendFlags = os.O_WRONLY | os.O_APPEND
