package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"plugpull/client"
	"plugpull/internal/database"
	"plugpull/internal/usage"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// Server is what the campaign asks of a database server. Methods block on the
// network and are called by one goroutine at a time, except Dial.
type Server interface {
	// Await blocks until the server itself answers; database.ErrNoServer when
	// ctx ends first. What waiting cannot cure is returned at once.
	Await(ctx context.Context) error
	// Facts reads what the server says of itself.
	Facts(ctx context.Context) (database.Facts, error)
	// Dial opens the pinned connection of a stream that writes an epoch's tables. It may
	// be called concurrently.
	Dial(ctx context.Context, p workload.Params, epoch uint32) (client.Conn, error)
}

// Store is plugpull's schema on the server.
type Store interface {
	// Run is the run that the schema belongs to, uuid.Nil for none or when it cannot be read.
	Run(ctx context.Context) (uuid.UUID, error)
	// Prepare makes the tables of an epoch.
	Prepare(ctx context.Context, p workload.Params, epoch uint32) error
	// PutToken writes a session's token into the MEMORY table.
	PutToken(ctx context.Context, session uint32, token uint64) error
	// Token looks for it.
	Token(ctx context.Context, token uint64) (database.Token, error)
	// Survivors reads the rows of an epoch; release frees what that needs.
	Survivors(epoch uint32) (rows verifier.Survivors, release func() error, err error)
}

// Database is the database under test.
type Database interface {
	Server
	Store
}

// Witnessing is a database that can have witness streams beside it: they append
// checksummed records to a file on the same filesystem.
type Witnessing interface {
	// DialWitness opens the file for a stream's records; p is of the witness profile.
	DialWitness(ctx context.Context, p workload.Params) (client.Conn, error)
	// WitnessSurvivors reads the records that are left. A *verifier.UnreadableError is the
	// bench's own evidence that the file's filesystem cannot be read.
	WitnessSurvivors(p workload.Params) (verifier.Survivors, error)
}

// identityKeys are the facts that make a server the same server. Its version may change.
var identityKeys = []string{"hostname", "port", "datadir", "server_uuid"}

// sameServer compares a server with the one that the ledger recorded. What one of them
// does not say is not compared.
func sameServer(recorded, found map[string]string) error {
	var diff []string
	for _, k := range identityKeys {
		was, known := recorded[k]
		is, said := found[k]
		if known && said && was != is {
			diff = append(diff, fmt.Sprintf("%s was %q and is %q", k, was, is))
		}
	}
	if len(diff) == 0 {
		return nil
	}
	return usage.Errorf("this is not the server that the ledger recorded: %s. Give the DSN of that server", strings.Join(diff, ", "))
}

// checkSettings refuses what the caller did not allow.
func checkSettings(f database.Facts, allowNonDurable, allowBinlog bool) error {
	var bad []string
	if !allowNonDurable {
		for _, p := range f.Problems {
			bad = append(bad, "  "+p.String())
		}
	}
	slices.Sort(bad)
	if len(bad) > 0 {
		return usage.Errorf("the server's settings can lose acknowledged commits by themselves:\n%s\nSet the safe values, or pass --allow-nondurable (in a scenario: database.allow_nondurable) to test them as they are", strings.Join(bad, "\n"))
	}
	if f.Binlog && !allowBinlog {
		return usage.Errorf("the server writes a binary log (log_bin=ON), and the streams would fill it and reach its replicas. Turn it off, or pass --allow-binlog (in a scenario: database.allow_binlog)")
	}
	return nil
}
