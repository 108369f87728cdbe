package probe

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkAgainstPgbench compares the probe with pgbench -M prepared, one client, the same INSERT into the same table, on the same
// server and socket: rounds in turn, medians. Without flushes (fsync=off), so that it is the client's own cost that is compared.
func BenchmarkAgainstPgbench(b *testing.B) {
	s := startPostgres(b, "-c", "fsync=off")
	s.do(b, "CREATE TABLE public.commits (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, filler varchar(128) NOT NULL) WITH (autovacuum_enabled = off)")
	script := filepath.Join(s.Dir, "insert.sql")
	require.NoError(b, os.WriteFile(script, []byte("INSERT INTO public.commits (filler) VALUES ('"+filler+"')\n"), 0o644))
	const commits = 5000
	rates := map[string][]float64{}
	for b.Loop() {
		out, err := s.Command(s.Program("pgbench"), "-n", "-c1", "-M", "prepared", "-t", fmt.Sprint(commits), "-f", script, "-h", s.Dir, "-U", "super", "postgres").CombinedOutput()
		require.NoError(b, err, "%s", out)
		_, after, found := strings.Cut(string(out), "tps = ")
		require.True(b, found, "%s", out)
		var rate float64
		_, err = fmt.Sscan(after, &rate)
		require.NoError(b, err)
		rates["pgbench"] = append(rates["pgbench"], rate)
		for name, inServer := range map[string]bool{"client": false, "in-server": true} {
			target := s.target(b, "super")
			target.InServer = inServer
			r, err := Run(context.Background(), target, Options{Commits: commits})
			require.NoError(b, err)
			rates[name] = append(rates[name], r.Rate())
		}
	}
	median := map[string]float64{}
	for name, r := range rates {
		slices.Sort(r)
		median[name] = r[len(r)/2]
		b.ReportMetric(median[name], name+"/s")
	}
	b.ReportMetric(median["client"]/median["pgbench"], "of-pgbench")
	b.ReportMetric(median["in-server"]/median["pgbench"], "in-server-of-pgbench")
}
