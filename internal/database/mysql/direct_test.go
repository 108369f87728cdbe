package mysql

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A server behind a tunnel or a proxy is not taken for one of this machine, whatever its address.
func TestDirect(t *testing.T) {
	s := sharedServer(t)
	socket := testDSN(0)
	socket.Host, socket.Socket = "", s.Socket()
	for name, c := range map[string]struct {
		dsn  DSN
		want bool
	}{
		"tcp":       {testDSN(uint16(s.Port())), true},
		"a socket":  {socket, true},
		"a proxy's": {testDSN(newProxy(t, s.Addr()).port()), false},
	} {
		d, err := Open(c.dsn, Options{})
		require.NoError(t, err)
		direct, err := d.Direct(ctx(t))
		require.NoError(t, err, name)
		assert.Equal(t, c.want, direct, name)
	}
}
