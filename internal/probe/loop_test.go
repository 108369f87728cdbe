package probe

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/bench/loop"
	"plugpull/internal/database/mysql"
	"plugpull/internal/testskip"
	"plugpull/scenarios"
)

// On a drive whose flush takes a known time the probe finds that time, and counts the flushes.
func TestFlushLatencyIsSeen(t *testing.T) {
	testskip.LoopBench(t)
	templates, err := loop.NewTemplates()
	require.NoError(t, err)
	defer func() { require.NoError(t, templates.Close()) }()
	seen := map[time.Duration]time.Duration{}
	for _, latency := range []time.Duration{0, time.Millisecond, 8 * time.Millisecond} {
		t.Run(latency.String(), func(t *testing.T) {
			b := onDrive(t, templates, latency)
			var before, after map[string]uint64
			r, err := Run(context.Background(), Server{DB: serverOf(t, b), InServer: true}, Options{For: time.Second, Around: func(begin bool) {
				if after = flushes(t); begin {
					before = after
				}
			}})
			require.NoError(t, err)
			device := loopUnder(t, b)
			moved := after[device] - before[device]
			assert.GreaterOrEqual(t, moved, r.Commits, "each commit has a flush of its own")
			seen[latency] = r.Latency(10)
			assert.GreaterOrEqual(t, seen[latency], latency, "none is acknowledged before its flush")
			got := Interpret(&r, Evidence{Layers: []Layer{{Name: device, WriteCache: "write back", Flushes: &moved}}})
			t.Logf("%.0f commits/s, median %v; %+v", r.Rate(), r.Latency(50), got)
			assert.Equal(t, "flush_latency", got[0].Code)
			assert.Contains(t, got[0].Text, "reached "+device+": its flush latency is at most about "+span(r.Latency(50), Style{}))
			if latency == 8*time.Millisecond {
				assert.Equal(t, "medium_waited_for", got[1].Code)
			}
		})
	}
	assert.Less(t, seen[0], seen[time.Millisecond])
	assert.Less(t, seen[time.Millisecond], seen[8*time.Millisecond])
}

// onDrive starts a server on a simulated drive with this flush latency.
func onDrive(t *testing.T, templates *loop.Templates, latency time.Duration) *loop.Bench {
	t.Helper()
	sc, err := scenarios.Load("ext4")
	require.NoError(t, err)
	sc.Drive.FlushLatency, sc.Drive.WriteLatency = latency, 0
	c := loop.ConfigOf(&sc, 1, 10*time.Second, "")
	c.Templates = templates
	b, err := loop.New(context.Background(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	require.NoError(t, b.Renew(context.Background(), 1))
	return b
}

func serverOf(t *testing.T, b *loop.Bench) *mysql.DB {
	t.Helper()
	db, ok := b.Database().(interface{ DSN() mysql.DSN })
	require.True(t, ok)
	return open(t, db.DSN().String())
}

// loopUnder ends the bench's power, and returns the name of the loop device that was under its server.
func loopUnder(t *testing.T, b *loop.Bench) string {
	t.Helper()
	cut, err := b.Cut(context.Background())
	require.NoError(t, err)
	var d loop.Detail
	require.NoError(t, json.Unmarshal(cut.Detail, &d))
	return d.Loop
}

// flushes reads how many flushes each loop device was sent.
func flushes(t *testing.T) map[string]uint64 {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/stat")
	require.NoError(t, err)
	all := map[string]uint64{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it went away, and so was another's
		}
		fields := strings.Fields(string(b))
		require.Greater(t, len(fields), 15)
		all[strings.Split(f, "/")[3]], err = strconv.ParseUint(fields[15], 10, 64)
		require.NoError(t, err)
	}
	return all
}
