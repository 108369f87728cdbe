package probe

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// made returns a result as a probe with these latencies would have it.
func made(kind Kind, latencies ...time.Duration) *Result {
	m := newMeter(nil)
	for _, l := range latencies {
		m.add(l, l)
	}
	r := &Result{Kind: kind, Where: "mysql://root@db:3306/plugpull_probe", Version: "10.11.9-MariaDB", Began: time.Unix(1e9, 0).UTC()}
	m.fill(r)
	return r
}

// steady returns n commits of one latency.
func steady(kind Kind, n int, latency time.Duration) *Result {
	l := make([]time.Duration, n)
	for i := range l {
		l[i] = latency
	}
	return made(kind, l...)
}

func TestDraw(t *testing.T) {
	var mixed []time.Duration
	for i := range 12_000 {
		l := time.Duration(400+i%300) * time.Microsecond
		switch {
		case i%1000 == 7:
			l = 31 * time.Millisecond
		case i > 8000:
			l *= 2
		case i%40 == 0:
			l = 90 * time.Microsecond
		}
		mixed = append(mixed, l)
	}
	for name, r := range map[string]*Result{
		"mixed": made(KindClient, mixed...), "one": made(KindInServer, 8*time.Millisecond), "none": made(KindFolder),
		"edges": made(KindClient, 1, time.Microsecond, 2*time.Microsecond, 2001, time.Millisecond, time.Second, 2*time.Hour),
	} {
		for ending, s := range map[string]Style{"": {}, "-ascii": {ASCII: true, Width: 30}} {
			t.Run(name+ending, func(t *testing.T) {
				var b strings.Builder
				require.NoError(t, Draw(&b, r, s))
				file := "testdata/" + name + ending + ".txt"
				if *update {
					require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
				}
				want, err := os.ReadFile(file)
				require.NoError(t, err)
				assert.Equal(t, string(want), b.String())
				for _, c := range b.String() {
					assert.False(t, s.ASCII && c > 126, "%q is not ASCII", c)
				}
			})
		}
	}
}

func TestBucketsHoldEveryCommit(t *testing.T) {
	r := made(KindClient, 1, 999, 1000, 1999, 2000, 2001, 4999, 5000, 5004, 9*time.Microsecond, 10*time.Microsecond)
	n := uint64(0)
	for _, b := range r.buckets() {
		n += b.count
	}
	assert.Equal(t, r.Commits, n)
	assert.Equal(t, []bucket{{1000, 3}, {2000, 2}, {5000, 3}, {10000, 3}}, r.buckets())
}
