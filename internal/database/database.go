// Package database holds the words in which every database driver tells of its
// server. It guarantees only their meaning; the drivers are its subfolders.
package database

import (
	"errors"
	"fmt"
	"time"
)

// Facts is what a server says of itself.
type Facts struct {
	// Identity has hostname, port, datadir, server_uuid where the server has one,
	// and its version.
	Identity map[string]string
	// Settings are those that were read, as the server says them.
	Settings map[string]string
	Uptime   time.Duration
	Binlog   bool
	Problems []Problem // settings that can lose an acknowledged commit
}

// Problem is a setting that can lose an acknowledged commit.
type Problem struct{ Name, Value, Safe, Risk string }

func (p Problem) String() string {
	return fmt.Sprintf("%s=%s (safe: %s): %s", p.Name, p.Value, p.Safe, p.Risk)
}

// Token is the state of a session's token in the server's memory.
type Token uint8

// The states of a token.
const (
	TokenUnknown Token = iota // its table cannot be read
	TokenThere                // the server has run on since
	TokenGone                 // the server was restarted
)

// ErrNoServer: the server did not answer within the wait.
var ErrNoServer = errors.New("the database server does not answer")
