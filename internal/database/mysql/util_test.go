package mysql

import (
	"fmt"
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
