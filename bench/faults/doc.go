// Package faults puts other lock libraries and Holdfast under the same faults, by
// the same script, and says what each of them let happen: how long two programs
// took themselves for the holder, how late the loss of a lock was told, and how
// long a lock stayed blocked by somebody who did not hold it.
//
// Each fault is played with two programs, processes of their own, that reach the
// store through a wire which the script can cut, silence, or rob of an answer. A
// program that holds asks its library every 5 ms whether it still does, in the way
// that library means it to be asked, and writes if the answer is yes. A write after
// the other program was granted the lock is one that destroys that one's work.
//
// It is a test, since what starts servers is made for tests:
//
//	go test ./faults -run TestFaults -faults.all -faults.runs 6 -parallel 8 -v
//
// The results are in docs/safety.md.
package faults
