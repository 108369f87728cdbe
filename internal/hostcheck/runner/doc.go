// Package runner asks hosts: this one (Local), one behind SSH (DialSSH), or one whose answers were saved
// in a folder (OpenSaved), which a Recorder around another runner wrote.
//
// It guarantees that a host is only ever asked and never changed by the runner itself; that programs speak
// English (LC_ALL=C), find their like in /usr/sbin and /sbin, have no input and are killed with their
// children when the context ends; that nothing unbounded is read; and that the same questions to a saved
// folder and to the host it was saved from get the same answers.
//
// # A folder of saved outputs
//
//	host                          one line: the host's description
//	commands/COMMAND.stdout       what the command wrote
//	commands/COMMAND.stderr       the same; not there where it wrote nothing
//	commands/COMMAND.code         its exit status, or "not installed", or "error: " and why it did not run
//	files/PATH                    the content of a file
//	folders/PATH.names            the names in a folder, one a line
//	links/PATH.path               what the path is when its links are resolved
//	errors/KIND/PATH.error        KIND is files, folders or links: why there is no answer: "not found",
//	                              "permission denied", or "error: " and the reason
//
// COMMAND is the command line as hostcheck.CommandLine writes it, and every part of PATH, with each byte
// other than letters, digits and  space ! + , - . : = @ _  written as %XX in hexadecimal, also a dot at the
// beginning; a name of more than 180 bytes then ends after 160 in "~" and the first 16 hexadecimal digits of
// the SHA-256 of the whole. What is not in the folder is hostcheck.ErrNotSaved: that says nothing of the
// host. The folder names devices and serial numbers and is made for its owner only.
package runner

import (
	"bytes"
	"errors"

	"plugpull/internal/hostcheck"
)

// Bounds of what is read. Of files the words of hostcheck.Runner are 1 MiB.
const (
	maxFile   = 1 << 20
	maxStdout = 8 << 20
	maxStderr = 64 << 10
)

// ErrTooLarge: there is more than is ever read. Nothing of it is returned.
var ErrTooLarge = errors.New("larger than is read")

// These are the runners.
var (
	_ hostcheck.Runner = Local{}
	_ hostcheck.Runner = (*Saved)(nil)
	_ hostcheck.Runner = (*Recorder)(nil)
	_ hostcheck.Runner = (*SSH)(nil)
)

// bounded keeps what is written to it, and refuses what is more than limit bytes in all. The buffer is no
// embedded one: io.Copy would then pass Write by.
type bounded struct {
	kept  bytes.Buffer
	limit int
	over  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.over || b.kept.Len()+len(p) > b.limit {
		b.over = true
		return 0, ErrTooLarge
	}
	return b.kept.Write(p)
}

// noise keeps the first bytes that are written to it and drops the others: nothing is judged by how
// much a program complains.
type noise struct {
	kept  bytes.Buffer
	limit int
}

func (n *noise) Write(p []byte) (int, error) {
	n.kept.Write(p[:min(len(p), n.limit-n.kept.Len())])
	return len(p), nil
}
