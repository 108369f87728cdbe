package hostcheck

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var day0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// wear is a unit's capacity at each of some learn cycles, days apart.
func wear(unit string, days int, percents ...float64) []Reading {
	var all []Reading
	for i, p := range percents {
		all = append(all, Reading{At: day0.AddDate(0, 0, i*days), Unit: unit, CapacityPercent: p})
	}
	return all
}

func TestPredict(t *testing.T) {
	for name, c := range map[string]struct {
		readings []Reading
		date     string // "": silence
	}{
		"a straight line":           {wear("a", 30, 100, 98, 96, 94, 92), "2028-01-21"}, // 2 points in 30 days, 50 to go
		"two cycles":                {wear("a", 60, 100, 90), ""},
		"too short a time":          {wear("a", 10, 100, 95, 90), ""},
		"no loss":                   {wear("a", 60, 90, 90, 90, 91, 92), ""},
		"so slow that it is no end": {wear("a", 90, 100, 99.9, 99.8, 99.7), ""},
		"a new battery":             {append(wear("a", 60, 100, 80, 60), Reading{day0.AddDate(0, 0, 200), "a", 100}), ""},
		"daily readings of the same cycles": {func() (all []Reading) {
			for i := range 121 {
				all = append(all, Reading{day0.AddDate(0, 0, i), "a", []float64{100, 98, 96, 94, 92}[i/30]})
			}
			return all
		}(), "2028-01-21"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Predict(c.readings, 50)
			if c.date == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			want, err := time.Parse(time.DateOnly, c.date)
			require.NoError(t, err)
			require.WithinDuration(t, want, got[0].Date, 24*time.Hour)
			require.Equal(t, Warning, got[0].Finding(50).Level)
		})
	}
	t.Run("what is uncertain is said", func(t *testing.T) {
		p := Predict(wear("a", 30, 100, 97, 98, 94, 95, 90), 50)[0]
		require.True(t, p.Earliest.Before(p.Date))
		require.True(t, p.Latest.IsZero() || p.Latest.After(p.Date))
		require.Contains(t, p.Finding(50).Text, "by these readings")
	})
	t.Run("at the limit already", func(t *testing.T) {
		require.Equal(t, "cache_capacity_low", Predict(wear("a", 30, 70, 60, 49), 50)[0].Finding(50).Code)
	})
	t.Run("each unit for itself", func(t *testing.T) {
		got := Predict(append(wear("a", 30, 100, 90, 80), wear("b", 30, 100, 95, 90)...), 50)
		require.Len(t, got, 2)
		require.Equal(t, "a", got[0].Unit, "the first to end comes first")
	})
}

func TestHistoryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	all, err := Remember(path, wear("a", 30, 100, 98))
	require.NoError(t, err)
	require.Len(t, all, 2)
	again := Reading{day0.AddDate(0, 0, 30).Add(time.Hour), "a", 98}
	all, err = Remember(path, []Reading{again})
	require.NoError(t, err)
	require.Len(t, all, 2, "the same within a day is no news")

	// A crash in the middle of a line.
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(b, `{"at":"2026-05-01T00:0`...), 0o600))
	all, err = Remember(path, []Reading{{day0.AddDate(0, 3, 0), "a", 96}})
	require.NoError(t, err)
	require.Len(t, all, 3)
	all, err = ReadHistory(path)
	require.NoError(t, err)
	require.Len(t, all, 3)

	// Somebody's own file is not written over.
	require.NoError(t, os.WriteFile(path, []byte("shopping\nlist\n"), 0o600))
	_, err = Remember(path, wear("a", 30, 100))
	require.ErrorContains(t, err, path+":1: no reading of plugpull check")
	b, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "shopping\nlist\n", string(b))

	all, err = ReadHistory(filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	require.Empty(t, all)
}

func FuzzHistory(f *testing.F) {
	f.Add([]byte(`{"at":"2026-01-01T00:00:00Z","unit":"a","capacity_percent":99}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "h")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := ReadHistory(path)
		if err == nil {
			Predict(all, 50)
		}
	})
}
