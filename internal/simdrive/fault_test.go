package simdrive

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want Fault
		back string // the canonical text; "" means text
	}{
		{"flush-ignored", Fault{Class: FlushIgnored}, ""},
		{"flush-ignored@always", Fault{Class: FlushIgnored}, "flush-ignored"},
		{"flush-late", Fault{Class: FlushLate, Arg: int64(50 * time.Millisecond)}, "flush-late(50ms)"},
		{"flush-late(1m30s)@cycle=3", Fault{Class: FlushLate, Arg: int64(90 * time.Second), Cycle: 3}, ""},
		{"fua-ignored@p=0.25", Fault{Class: FUAIgnored, P: 0.25}, ""},
		{"capacitor@p=1", Fault{Class: Capacitor, P: 1}, ""},
		{"weak-capacitor", Fault{Class: WeakCapacitor, Arg: 64 << 10}, "weak-capacitor(64KiB)"},
		{"weak-capacitor(1024B)", Fault{Class: WeakCapacitor, Arg: 1024}, "weak-capacitor(1KiB)"},
		{"weak-capacitor(1536B)", Fault{Class: WeakCapacitor, Arg: 1536}, ""},
		{"bit-corruption(7)", Fault{Class: BitCorruption, Arg: 7}, ""},
		{"shorn-write@p=0.001", Fault{Class: ShornWrite, Arg: 3, P: 0.001}, "shorn-write(3/8)@p=0.001"},
		{"shorn-write(7/8)", Fault{Class: ShornWrite, Arg: 7}, ""},
		{"unserializable(2)", Fault{Class: Unserializable, Arg: 2}, ""},
		{"metadata-lost(1MiB)", Fault{Class: MetadataLost, Arg: 1 << 20}, ""},
		{"metadata-old(2GiB)", Fault{Class: MetadataOld, Arg: 2 << 30}, ""},
		{"dead-device@cycle=1", Fault{Class: DeadDevice, Cycle: 1}, ""},
		{"misdirected-write@p=1e-05", Fault{Class: MisdirectedWrite, P: 1e-5}, ""},
		{"adjacent-damage", Fault{Class: AdjacentDamage}, ""},
	} {
		t.Run(c.text, func(t *testing.T) {
			t.Parallel()
			got, err := ParseFault(c.text)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			back := c.back
			if back == "" {
				back = c.text
			}
			assert.Equal(t, back, got.String())
		})
	}
}

func TestParseFaultRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "flush", "Flush-ignored", " flush-ignored", "flush-ignored ", "flush-ignored()", "flush-ignored(1)",
		"flush-late()", "flush-late(0s)", "flush-late(-1ms)", "flush-late(50)", "flush-late(50ms",
		"weak-capacitor(100B)", "weak-capacitor(64)", "weak-capacitor(0B)", "weak-capacitor(9999999999GiB)",
		"metadata-lost(512B)", "bit-corruption(0)", "bit-corruption(-1)", "bit-corruption(1.5)",
		"shorn-write(0/8)", "shorn-write(8/8)", "shorn-write(3/4)", "unserializable(99999999)",
		"capacitor@", "capacitor@p=0", "capacitor@p=1.1", "capacitor@p=-1", "capacitor@p=NaN", "capacitor@p=",
		"capacitor@cycle=0", "capacitor@cycle=-1", "capacitor@cycle=1@p=0.5", "capacitor@sometimes", "capacitor@always=1",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, err := ParseFault(text)
			require.ErrorIs(t, err, ErrFault)
		})
	}
}

func FuzzParseFault(f *testing.F) {
	for _, s := range []string{
		"flush-late(50ms)@p=0.25", "weak-capacitor(64KiB)", "shorn-write(3/8)@cycle=3", "bit-corruption(1)",
		"metadata-old(4KiB)@always", "dead-device", "misdirected-write@p=1e-300", "flush-late(2562047h)",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseFault(s)
		if err != nil {
			require.ErrorIs(t, err, ErrFault)
			return
		}
		require.NoError(t, got.Check())
		again, err := ParseFault(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
		require.Equal(t, got.String(), again.String())
		_, err = New(Config{Size: BlockSize, Faults: []Fault{got}})
		require.NoError(t, err)
	})
}
