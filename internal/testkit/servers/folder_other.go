//go:build !linux

package servers

// memoryFolder returns "": only Linux has a memory file system in a known place.
func memoryFolder() string { return "" }
