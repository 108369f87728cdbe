package check

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/layers"
)

// Measure does n fsyncs in every folder of the report, counts the flushes that arrive at each layer below, and
// judges the report again. It writes to a file of its own there, which it removes. A layer at which none of them
// arrives while the kernel thinks that its cache is write back is Critical, whatever its options say; where others
// flush at the same time the counts are too high, which hides nothing but a loss of some.
func Measure(ctx context.Context, r hostcheck.Runner, rep *hostcheck.Report, n int) {
	seen := map[string]bool{}
	for _, top := range rep.Tops {
		top.Walk(func(f *hostcheck.Node) {
			if f.Kind == "folder" && !seen[f.Name] {
				seen[f.Name] = true
				measure(ctx, r, f, n)
			}
		})
	}
	rep.Judge()
}

func measure(ctx context.Context, r hostcheck.Runner, folder *hostcheck.Node, n int) {
	before := layers.Flushes(ctx, r, folder)
	if err := fsyncs(ctx, folder.Name, n); err != nil {
		folder.Add(hostcheck.Unknown, "not_measured", "flushes could not be measured in %s: %v", folder.Name, err)
		return
	}
	after := layers.Flushes(ctx, r, folder)
	if len(after) == 0 {
		folder.Add(hostcheck.Unknown, "not_counted", "no layer below %s counts flushes", folder.Name)
		return
	}
	judgeFlushes(folder, before, after, n)
}

// counts reports whether the kernel counts the flushes that a layer gets: it does so where it makes a request of
// one, which device-mapper, md and the like do not (block/blk-flush.c).
func counts(n *hostcheck.Node) bool { return n.Kind == "disk" || n.Kind == "loop" }

// judgeFlushes compares the counts.
func judgeFlushes(folder *hostcheck.Node, before, after map[string]layers.Counter, n int) {
	folder.Walk(func(b *hostcheck.Node) {
		if !counts(b) {
			return
		}
		now, counted := after[b.Name]
		was, earlier := before[b.Name]
		if !counted || !earlier {
			return
		}
		got := now.Flushes - was.Flushes
		b.Facts = append(b.Facts, hostcheck.Fact{Key: "flushes measured", Value: fmt.Sprintf("%d for %d fsyncs", got, n), From: "/sys/block/" + b.Name + "/stat"})
		if got > 0 || now.WriteCache != "write back" {
			return // on a write through queue the block layer strips flushes: none is expected
		}
		b.Add(hostcheck.Critical, "flushes_lost", "%d fsyncs in %s sent no flush to %s %s, whose cache the kernel takes for write back: a layer above swallows them",
			n, folder.Name, b.Kind, b.Name)
	})
}

// fsyncs appends to a file and syncs it, n times.
func fsyncs(ctx context.Context, dir string, n int) (err error) {
	f, err := os.CreateTemp(dir, ".plugpull-measure-")
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if removeErr := os.Remove(f.Name()); err == nil {
			err = removeErr
		}
	}()
	block := make([]byte, 4096)
	for range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := f.Write(block); err != nil {
			return err
		}
		if err := unix.Fsync(int(f.Fd())); err != nil {
			return fmt.Errorf("fsync: %w", err)
		}
	}
	return nil
}
