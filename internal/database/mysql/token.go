package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Token says what became of a session's token: it lies in a MEMORY table,
// which a restart of the server empties.
type Token uint8

// The states of a token.
const (
	TokenPresent    Token = iota + 1 // the server has not been restarted
	TokenGone                        // it has been restarted
	TokenUnreadable                  // the table is gone or damaged: says nothing about a restart
)

func (t Token) String() string {
	switch t {
	case TokenPresent:
		return "present"
	case TokenGone:
		return "gone"
	case TokenUnreadable:
		return "unreadable"
	}
	return fmt.Sprintf("token(%d)", uint8(t))
}

// PutToken stores the token of a session.
func (d *DB) PutToken(ctx context.Context, session uint32, token uint64) error {
	return d.explain(d.control(ctx, "", func(c *sql.Conn) error {
		if _, err := c.ExecContext(ctx, "INSERT INTO "+d.quoted(tokenTable)+" (token, session) VALUES (?, ?)", token, session); err != nil {
			return fmt.Errorf("store the session's token: %w", err)
		}
		return nil
	}))
}

// TokenState looks for a token. An error other than that the table is gone
// or damaged is returned, with state zero.
func (d *DB) TokenState(ctx context.Context, token uint64) (state Token, err error) {
	err = d.control(ctx, "", func(c *sql.Conn) error {
		var one int
		err := c.QueryRowContext(ctx, "SELECT 1 FROM "+d.quoted(tokenTable)+" WHERE token = ?", token).Scan(&one)
		switch {
		case err == nil:
			state = TokenPresent
		case errors.Is(err, sql.ErrNoRows):
			state = TokenGone
		case unreadable(Errno(err)):
			state = TokenUnreadable
		default:
			return fmt.Errorf("look for the session's token: %w", err)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return state, nil
}
