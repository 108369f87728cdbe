package probe

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResultGoesThroughAFile(t *testing.T) {
	r := noisy(1, 3, time.Millisecond, 0.3)
	r.Settings, r.Began, r.Interrupted = map[string]string{"a": "b"}, time.Unix(1e9, 0).UTC(), true
	var file bytes.Buffer
	require.NoError(t, r.Write(&file))
	assert.Contains(t, file.String(), `"commits_per_second": `)
	back, err := ReadResult(&file)
	require.NoError(t, err)
	assert.True(t, r.hist.Equals(back.hist))
	assert.Equal(t, r.Latency(99), back.Latency(99))
	assert.Equal(t, r.Intervals, back.Intervals)
	assert.Equal(t, r.Rate(), back.Rate())
	r.hist, back.hist = nil, nil
	assert.Equal(t, r, back)
	assert.Error(t, (&Result{}).Write(&file), "nothing was measured")
}

func TestReadResultRefuses(t *testing.T) {
	var file bytes.Buffer
	r := steady(KindFolder, 1000, time.Millisecond)
	require.NoError(t, r.Write(&file))
	for name, change := range map[string]func(m map[string]any){
		"schema":           func(m map[string]any) { m["schema"] = 2 },
		"kind":             func(m map[string]any) { m["kind"] = "other" },
		"negative time":    func(m map[string]any) { m["seconds"] = -1 },
		"endless":          func(m map[string]any) { m["seconds"] = 1e9 },
		"commits":          func(m map[string]any) { m["commits"] = 999 },
		"interval commits": func(m map[string]any) { m["intervals"] = []Interval{{1, 1001}} },
		"interval time":    func(m map[string]any) { m["intervals"] = []Interval{{0, 1}} },
		"interval sum":     func(m map[string]any) { m["intervals"] = []Interval{{0.6, 1}, {0.6, 1}} },
		"intervals":        func(m map[string]any) { m["intervals"] = make([]Interval, 1000) },
		"histogram":        func(m map[string]any) { m["hdr_histogram"] = "AAAA" },
		"its base64":       func(m map[string]any) { m["hdr_histogram"] = "?" },
	} {
		t.Run(name, func(t *testing.T) {
			var m map[string]any
			require.NoError(t, json.Unmarshal(file.Bytes(), &m))
			change(m)
			b, err := json.Marshal(m)
			require.NoError(t, err)
			_, err = ReadResult(bytes.NewReader(b))
			assert.Error(t, err)
		})
	}
	for _, text := range []string{"", "null", "[]", "{}", strings.Repeat(" ", MaxResult+1)} {
		_, err := ReadResult(strings.NewReader(text))
		assert.Error(t, err, text[:min(5, len(text))])
	}
	_, err := ReadResult(&file)
	assert.NoError(t, err, "the file itself is fine")
}

func FuzzReadResult(f *testing.F) {
	var file bytes.Buffer
	require.NoError(f, steady(KindFolder, 100, time.Millisecond).Write(&file))
	f.Add(file.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ReadResult(bytes.NewReader(b))
		if err != nil {
			return
		}
		// What is read can be used.
		Interpret(r, Evidence{Baseline: r, Other: r})
		require.NoError(t, Draw(&bytes.Buffer{}, r, Style{}))
	})
}

func TestIntervalsStayFew(t *testing.T) {
	m := newMeter(nil)
	for range 200_000 {
		m.add(10*time.Millisecond, 10*time.Millisecond)
	}
	var r Result
	m.fill(&r)
	assert.LessOrEqual(t, len(r.Intervals), mostIntervals+1)
	assert.Greater(t, len(r.Intervals), mostIntervals/3)
	for _, i := range r.Intervals {
		assert.InDelta(t, 100, i.Rate(), 1)
	}
}

func TestTicksComeEverySecond(t *testing.T) {
	var got []Tick
	m := newMeter(func(k Tick) { got = append(got, k) })
	for range 350 {
		m.add(10*time.Millisecond, 10*time.Millisecond)
	}
	require.Len(t, got, 3)
	assert.EqualValues(t, 300, got[2].Commits)
	assert.InDelta(t, 100, got[2].Rate, 0.01)
}

func TestChunkOfTheServer(t *testing.T) {
	m := newMeter(nil)
	require.NoError(t, addChunk(m, "100 200 300 "))
	assert.EqualValues(t, 3, m.commits)
	assert.Equal(t, 600*time.Microsecond, m.took)
	assert.ErrorIs(t, addChunk(m, "100 -3600000000 "), errClock)
	assert.ErrorIs(t, addChunk(m, "3600000001"), errClock)
	assert.Error(t, addChunk(m, ""))
	assert.Error(t, addChunk(m, "x"))
}
