package probe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/testserver"
	"plugpull/internal/testskip"
)

// BenchmarkAgainstSlap compares the probe with mariadb-slap, which is what people use by hand: the same server on a disk, socket
// and number of commits, rounds in turn, medians.
func BenchmarkAgainstSlap(b *testing.B) {
	slap := testskip.Program(b, "mariadb-slap", "mariadb-client")
	s := startServer(b, testserver.Options{Dir: os.TempDir(), Args: []string{"--innodb-log-file-size=256M", "--innodb-buffer-pool-size=256M"}})
	server := open(b, "mysql://root@localhost?socket="+s.Socket())
	const commits = 5000
	rates := map[string][]float64{}
	for b.Loop() {
		start := time.Now()
		out, err := exec.Command(slap, "--no-defaults", "--socket="+s.Socket(), "--user=root", "--concurrency=1", "--iterations=1", "--engine=innodb",
			"--auto-generate-sql", "--auto-generate-sql-load-type=write", fmt.Sprintf("--number-of-queries=%d", commits), "--csv").CombinedOutput()
		require.NoError(b, err, "%s", out)
		rates["slap"] = append(rates["slap"], slapRate(b, string(out), commits, time.Since(start)))
		for name, target := range map[string]Server{"client": {DB: server}, "in-server": {DB: server, InServer: true}} {
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
	b.ReportMetric(median["client"]/median["slap"], "of-slap")
	b.ReportMetric(median["in-server"]/median["slap"], "in-server-of-slap")
}

// slapRate reads the seconds that slap took for its queries alone: ",write,0.123,…".
func slapRate(b *testing.B, csv string, commits int, whole time.Duration) float64 {
	var seconds float64
	n, err := fmt.Sscanf(csv, "innodb,write,%f", &seconds)
	require.NoError(b, err, "%d of %q", n, csv)
	require.Less(b, seconds, whole.Seconds())
	return float64(commits) / seconds
}
