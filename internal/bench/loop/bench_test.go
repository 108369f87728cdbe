package loop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/internal/blockdev"
	"plugpull/internal/database/mysql"
	"plugpull/internal/ledger"
	"plugpull/internal/mysqld"
	"plugpull/internal/testskip"
	"plugpull/internal/workload"
)

// BenchmarkCommits compares commits a second on the simulated drive with the same server on a
// loop device over a plain file, on the disk of the temporary folder and in memory. Rounds alternate;
// medians.
func BenchmarkCommits(b *testing.B) {
	testskip.LoopBench(b)
	for _, streams := range []int{1, 8} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			sc := builtin(b, "ext4")
			bench, err := New(context.Background(), ConfigOf(&sc, 1, 10e9, ""))
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, bench.Close()) })
			require.NoError(b, bench.Renew(context.Background(), 1))
			peers := []*peer{{name: "drive", addr: bench.server.Addr()}, plainFile(b, bench, "disk", b.TempDir()), plainFile(b, bench, "memory", bench.dir)}
			for b.Loop() {
				for _, p := range peers {
					p.rates = append(p.rates, p.commits(b, streams))
				}
			}
			for _, p := range peers {
				slices.Sort(p.rates)
				b.ReportMetric(p.median(), p.name+"-commits/s")
			}
			b.ReportMetric(peers[0].median()/peers[1].median(), "of-disk")
			b.ReportMetric(peers[0].median()/peers[2].median(), "of-memory")
		})
	}
}

type peer struct {
	name, addr string
	epoch      uint32
	rates      []float64
}

func (p *peer) median() float64 { return p.rates[len(p.rates)/2] }

// plainFile starts the same server on ext4 on a loop device over a file in dir.
func plainFile(b *testing.B, like *Bench, name, dir string) *peer {
	ctx := context.Background()
	ns, err := blockdev.NewNamespace()
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, ns.Close()) })
	image, mnt := filepath.Join(dir, "image-"+name), filepath.Join(dir, "mnt-"+name)
	f, err := os.Create(image)
	require.NoError(b, err)
	require.NoError(b, f.Truncate(like.c.Drive.Size))
	require.NoError(b, f.Close())
	require.NoError(b, os.Mkdir(mnt, 0o700))
	var l *blockdev.Loop
	require.NoError(b, ns.Do(func() error {
		// tmpfs has no direct I/O.
		if l, err = blockdev.Attach(ctx, image, blockdev.Options{BlockSize: 512, DirectIO: name == "disk", Autoclear: true}); err != nil {
			return err
		}
		if err := blockdev.Make(ctx, blockdev.FS{Type: "ext4"}, l.Path()); err != nil {
			return err
		}
		if _, err := blockdev.Mount(l.Path(), mnt, blockdev.FS{Type: "ext4"}); err != nil {
			return err
		}
		template, err := like.c.Templates.of(ctx, like.install, nil)
		if err != nil {
			return err
		}
		return os.CopyFS(mnt+"/data", os.DirFS(template))
	}))
	s, err := mysqld.New(like.install, mysqld.Config{Datadir: mnt + "/data", Dir: like.dir, Spawn: ns.Do})
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, s.Close())
		require.NoError(b, ns.Do(func() error { return blockdev.Unmount(ctx, mnt) }))
		require.NoError(b, l.Detach(ctx))
	})
	p, err := s.Start(ctx)
	require.NoError(b, err)
	require.NoError(b, p.Await(ctx))
	return &peer{name: name, addr: s.Addr()}
}

// commits lets streams append for a while and returns commits a second.
func (p *peer) commits(b *testing.B, streams int) float64 {
	const round = time.Second
	ctx := context.Background()
	dsn, err := mysql.ParseDSN("mysql://root@" + p.addr + "/plugpull")
	require.NoError(b, err)
	db, err := mysql.Open(dsn, mysql.Options{})
	require.NoError(b, err)
	params := workload.Params{Run: [16]byte{1}, Profile: workload.Append, PayloadMin: 100, PayloadMax: 400}
	p.epoch++
	require.NoError(b, db.Prepare(ctx, params, p.epoch))
	counts := make([]int, streams)
	var wg sync.WaitGroup
	for i := range counts {
		c, err := db.Dial(ctx, params, p.epoch)
		require.NoError(b, err)
		defer c.Close()
		wg.Go(func() {
			for end := time.Now().Add(round); time.Now().Before(end); counts[i]++ {
				r := c.Commit(ctx, workload.Op{Stream: workload.Stream(i + 1), Seq: workload.Seq(counts[i] + 1), First: 1})
				if r.Outcome != ledger.Acked {
					b.Error(r.Err)
					return
				}
			}
		})
	}
	wg.Wait()
	n := 0
	for _, c := range counts {
		n += c
	}
	return float64(n) / round.Seconds()
}
