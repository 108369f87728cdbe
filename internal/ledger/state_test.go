package ledger

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/clock"
	"plugpull/internal/workload"
)

func TestScan(t *testing.T) {
	b := append(encoded(t, sample(t)...), 1, 2, 3)
	st, err := Scan(readerOf(t, b))
	require.NoError(t, err)
	assert.Equal(t, &State{
		Header: Header{Run: testRun, Boot: testBoot}, Config: testConfig(),
		End: LSN((len(b)-3)/recordSize) - 1, Dropped: Tail{3, 1},
		Sessions: 1, Session: 1, Epoch: 2, Cycle: 1,
		Reserved: map[workload.Stream]workload.Seq{1: 4096, 2: 64},
		Acked:    2, Refused: 2, Unknown: 1,
		Info: SessionInfo{BootID: testBoot.String(), Wall: "2026-01-02T03:04:05.6Z", Plugpull: "v0", Server: map[string]string{"version": "11.8"}},
		Wall: time.Unix(0, 1767323045_123456789), Last: 1101 * second,
	}, st)
}

func TestScanEmpty(t *testing.T) {
	st, err := Scan(readerOf(t, encoded(t)))
	require.NoError(t, err)
	assert.Empty(t, st.Reserved)
	back, err := st.CheckClock(testBoot, 1, time.Unix(1, 0))
	require.NoError(t, err)
	assert.Zero(t, back)
}

func TestCheckClock(t *testing.T) {
	otherBoot := uuid.MustParse("b0070000-0000-4000-8000-000000000002")
	wall := time.Unix(0, 1767323045_123456789)
	later := func(rs ...Record) []Record { return append(sample(t), rs...) }
	rebooted := later(
		Record{Kind: KindSession, Session: 2, Sent: 50 * second, From: workload.Seq(wall.UnixNano()), Count: 2},
		sessionText(t, 2, otherBoot),
		acked(5000))
	tornSession := later(Record{Kind: KindSession, Session: 2, Sent: 5000 * second, From: workload.Seq(wall.UnixNano())})
	for name, tc := range map[string]struct {
		records []Record
		boot    uuid.UUID
		now     clock.Instant
		wall    time.Time
		back    time.Duration
		err     error
	}{
		"later":                      {sample(t), testBoot, 1101 * second, wall, 0, nil},
		"earlier in the same boot":   {sample(t), testBoot, 1101*second - 1, wall, 0, ErrClockWentBack},
		"rebooted":                   {sample(t), otherBoot, 1 * second, wall, 0, nil},
		"wall clock back":            {sample(t), testBoot, 2000 * second, wall.Add(-time.Hour), time.Hour, nil},
		"both back":                  {sample(t), testBoot, 1 * second, wall.Add(-time.Hour), time.Hour, ErrClockWentBack},
		"two boots, later":           {rebooted, otherBoot, 51 * second, wall, 0, nil},
		"two boots, earlier":         {rebooted, otherBoot, 49 * second, wall, 0, ErrClockWentBack},
		"session of an unknown boot": {tornSession, testBoot, 1102 * second, wall, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := Scan(readerOf(t, encoded(t, tc.records...)))
			require.NoError(t, err)
			back, err := st.CheckClock(tc.boot, tc.now, tc.wall)
			assert.Equal(t, tc.back, back)
			if tc.err == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tc.err)
			}
		})
	}
}

func TestScanDamaged(t *testing.T) {
	b := encoded(t, sample(t)...)
	b[len(b)-65] ^= 1
	_, err := Scan(readerOf(t, b))
	var damaged *DamagedError
	require.ErrorAs(t, err, &damaged)
}
