package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"plugpull/internal/workload"
	"plugpull/verifier"
)

var sprintf = fmt.Sprintf

func tcpState(fd int) int {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return -1
	}
	return int(info.State)
}

func readAll(t testing.TB, sv verifier.Survivors, table workload.Table, s workload.Stream, from workload.Seq) (all []workload.Row) {
	t.Helper()
	rows, err := sv.Rows(ctx(t), table, s, from)
	require.NoError(t, err)
	defer rows.Close()
	var r workload.Row
	for {
		more, err := rows.Next(&r)
		require.NoError(t, err)
		if !more {
			return all
		}
		r.Payload = append([]byte(nil), r.Payload...)
		all = append(all, r)
	}
}

// ConnectionsLeft returns which of the connections are still there. Without
// the PROCESS privilege the server shows those of its own user only, and the
// streams are of it. After a restart the server numbers anew, so ask only where
// the token is still there.
func (d *DB) ConnectionsLeft(ctx context.Context, ids []uint64) (left []uint64, err error) {
	err = d.control(ctx, "", func(c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID()")
		if err != nil {
			return fmt.Errorf("list the server's connections: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			var id uint64
			if err := rows.Scan(&id); err != nil {
				return fmt.Errorf("list the server's connections: %w", err)
			}
			if slices.Contains(ids, id) {
				left = append(left, id)
			}
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("list the server's connections: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(left)
	return left, nil
}
