package mysql

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"plugpull/internal/ledger"
)

// stub takes some bytes and then fails.
type stub struct {
	net.Conn
	take int
	err  error
}

func (s *stub) Write(b []byte) (int, error)      { return min(s.take, len(b)), s.err }
func (s *stub) Read([]byte) (int, error)         { return 0, s.err }
func (s *stub) SetWriteDeadline(time.Time) error { return nil }
func (s *stub) SetReadDeadline(time.Time) error  { return nil }

func TestWireRemembersHowItEnded(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want ledger.End
	}{
		"FIN":              {io.EOF, ledger.EndFIN},
		"RST":              {&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, ledger.EndRST},
		"EPIPE":            {&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}, ledger.EndRST},
		"deadline":         {os.ErrDeadlineExceeded, ledger.EndSilence},
		"TCP_USER_TIMEOUT": {&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}, ledger.EndSilence},
		"no ARP answer":    {&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.EHOSTUNREACH)}, ledger.EndSilence},
		"own link down":    {&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.ENETDOWN)}, ledger.EndError},
		"closed here":      {net.ErrClosed, ledger.EndError},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wire{Conn: &stub{err: c.err}, silence: time.Second}
			_, err := w.Read(make([]byte, 1))
			assert.ErrorIs(t, err, c.err)
			assert.Equal(t, c.want, w.end)
			(w.Conn.(*stub)).err = syscall.EPIPE
			_, _ = w.Write([]byte("x"))
			assert.Equal(t, c.want, w.end, "the first error counts")
		})
	}
}

func TestWireCountsTheCommittingPacketOnly(t *testing.T) {
	s := &stub{take: 100}
	w := &wire{Conn: s, silence: time.Second}
	_, _ = w.Write([]byte("prepare"))
	assert.Zero(t, w.sent)
	w.arm()
	s.take, s.err = 0, syscall.EPIPE
	_, _ = w.Write([]byte("commit"))
	assert.Zero(t, w.written, "the kernel took none")
	s.take = 3
	_, _ = w.Write([]byte("commit"))
	assert.EqualValues(t, 3, w.written, "half a packet counts as sent")
	w.disarm()
	_, _ = w.Write([]byte("rollback"))
	assert.EqualValues(t, 3, w.written)
}
