package ledger

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestShow(t *testing.T) {
	rs := append([]Record{{Kind: KindMark, Code: uint8(MarkCycle), Cycle: 1, Answered: 999*second + 5}}, sample(t)...)
	var out bytes.Buffer
	require.NoError(t, Show(&out, readerOf(t, append(encoded(t, rs...), make([]byte, 70)...))))
	golden(t, "show.txt", out.String())
	assert.NotContains(t, out.String(), "\x1b", "a server's text must not drive the terminal")
}

func TestShowDamaged(t *testing.T) {
	b := encoded(t, acked(1), acked(2), acked(3))
	b[len(b)-65] ^= 1
	var out bytes.Buffer
	var damaged *DamagedError
	require.ErrorAs(t, Show(&out, readerOf(t, b)), &damaged)
	assert.Contains(t, out.String(), "outcome       1  1          acked", "what is before the damage is shown")
	assert.Equal(t, 6, bytes.Count(out.Bytes(), []byte("\n")))
}

type fullPipe struct{}

var errPipe = errors.New("pipe")

func (fullPipe) Write([]byte) (int, error) { return 0, errPipe }

func TestShowWriteError(t *testing.T) {
	require.ErrorIs(t, Show(fullPipe{}, readerOf(t, encoded(t, acked(1)))), errPipe)
}
