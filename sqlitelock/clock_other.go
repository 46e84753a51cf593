//go:build !linux && !darwin

package sqlitelock

import (
	"errors"
	"time"
)

var errNoBoot = errors.New("this operating system has no clock that counts from boot and through sleep within reach")

func sinceBoot() (time.Duration, error) { return 0, errNoBoot }
func bootID() (string, error)           { return "", errNoBoot }
func nap(d time.Duration)               { time.Sleep(d) }
