package mysql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"plugpull/internal/database"
	"plugpull/internal/usage"
	"plugpull/verifier"
)

// Target is a DB in the words of package database: what a campaign drives.
type Target struct{ *DB }

// Await blocks until the server has answered a query, for as long as ctx lasts:
// when its deadline passes, database.ErrNoServer; when it is cancelled, its
// error. What waiting cannot cure is a *usage.Error.
func (t Target) Await(ctx context.Context) error {
	limit := 10 * time.Minute
	if end, ok := ctx.Deadline(); ok {
		limit = time.Until(end).Round(time.Millisecond)
	}
	_, err := t.Wait(ctx, limit)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, ErrNotUp), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", database.ErrNoServer, err)
	}
	return usage.Wrap(err)
}

// Facts reads what the server says of itself.
func (t Target) Facts(ctx context.Context) (database.Facts, error) {
	var f database.Facts
	id, err := t.Identity(ctx)
	if err != nil {
		return f, err
	}
	s, err := t.DB.Settings(ctx)
	if err != nil {
		return f, err
	}
	f = database.Facts{Identity: id, Settings: maps.Clone(s.Variables), Uptime: s.Uptime, Binlog: s.LogBin}
	for _, p := range s.Problems {
		f.Problems = append(f.Problems, database.Problem(p))
	}
	return f, nil
}

// Run returns the run that the schema belongs to; uuid.Nil where the run table is empty,
// gone or damaged.
func (t Target) Run(ctx context.Context) (uuid.UUID, error) {
	runs, err := t.Runs(ctx)
	if err != nil {
		if unreadable(Errno(err)) {
			return uuid.Nil, nil
		}
		return uuid.Nil, err
	}
	if len(runs) == 0 {
		return uuid.Nil, nil
	}
	return runs[0], nil
}

// Token looks for a session's token.
func (t Target) Token(ctx context.Context, token uint64) (database.Token, error) {
	switch state, err := t.TokenState(ctx, token); state {
	case TokenPresent:
		return database.TokenThere, nil
	case TokenGone:
		return database.TokenGone, nil
	default:
		return database.TokenUnknown, err
	}
}

// Survivors reads the rows of an epoch.
func (t Target) Survivors(epoch uint32) (verifier.Survivors, func() error, error) {
	s, err := t.DB.Survivors(epoch)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}
