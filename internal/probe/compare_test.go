package probe

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noisy returns n seconds of commits whose mean latency wanders from interval to interval.
func noisy(seed uint64, seconds float64, mean time.Duration, spread float64) *Result {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := newMeter(nil)
	for m.took.Seconds() < seconds {
		slow := 1 + spread*rng.NormFloat64()
		for end := m.took + firstStep; m.took < end; {
			l := time.Duration(float64(mean) * max(0.1, slow+0.1*rng.NormFloat64()))
			m.add(l, l)
		}
	}
	r := &Result{Kind: KindFolder, Where: "/data"}
	m.fill(r)
	return r
}

func TestCompare(t *testing.T) {
	slow, fast := noisy(1, 10, 4*time.Millisecond, 0.1), noisy(2, 10, time.Millisecond, 0.1)
	c, err := Compare(slow, fast)
	require.NoError(t, err)
	assert.InDelta(t, 4, c.Ratio, 0.3)
	assert.True(t, c.Known() && c.Low < c.Ratio && c.Ratio < c.High && c.Low > 3.6 && c.High < 4.4, "%+v", c)
	assert.Regexp(t, `^[34](\.\d+)? times as fast as the baseline \(3\.\d+ to 4(\.\d+)? with 95 % confidence, from what varied within the two runs\)$`, c.Text())
	again, err := Compare(slow, fast)
	require.NoError(t, err)
	assert.Equal(t, c, again)

	c, err = Compare(fast, slow)
	require.NoError(t, err)
	assert.Regexp(t, `^0\.2\d? times as fast as the baseline \(0\.2`, c.Text())

	c, err = Compare(slow, noisy(3, 0.5, time.Millisecond, 0))
	require.NoError(t, err)
	assert.False(t, c.Known())
	assert.Contains(t, c.Text(), "too short to say how sure")

	_, err = Compare(made(KindFolder), fast)
	assert.Error(t, err)
	_, err = Compare(fast, made(KindFolder))
	assert.Error(t, err)
}

// A stack that did not change is rarely called faster or slower, and a real difference is seen.
func TestCompareKeepsItsConfidence(t *testing.T) {
	wrong, missed := 0, 0
	const pairs = 100
	for i := range uint64(pairs) {
		base := noisy(10+2*i, 5, 2*time.Millisecond, 0.2)
		c, err := Compare(base, noisy(11+2*i, 5, 2*time.Millisecond, 0.2))
		require.NoError(t, err)
		if c.Low > 1 || c.High < 1 {
			wrong++
		} else {
			assert.Contains(t, c.Text(), "no difference from the baseline that these runs can show")
		}
		if c, err = Compare(base, noisy(11+2*i, 5, 1500*time.Microsecond, 0.2)); err != nil || c.Low <= 1 {
			missed++
		}
	}
	t.Logf("%d of %d wrong, %d missed", wrong, pairs, missed)
	assert.LessOrEqual(t, wrong, pairs/10, "95 % confidence")
	assert.LessOrEqual(t, missed, pairs/50)
}

func TestCompareSaysWhatElseDiffers(t *testing.T) {
	a, b := noisy(1, 2, time.Millisecond, 0.1), noisy(2, 2, time.Millisecond, 0.1)
	a.Settings, b.Settings = map[string]string{"sync_binlog": "0", "same": "1", "gone": "x"}, map[string]string{"sync_binlog": "1", "same": "1"}
	a.Kind, a.Where, a.InMemory = KindInServer, "/other", true
	c, err := Compare(a, b)
	require.NoError(t, err)
	assert.Equal(t, []string{"the baseline ran as in_server and this as folder", "the baseline is of /other", "one of the two lies in memory",
		`gone was "x" and is ""`, `sync_binlog was "0" and is "1"`}, c.Notes)
	assert.Contains(t, c.Text(), `; beside the rate this differs, too: the baseline ran`)
}
