package hidrelay

import (
	"context"
	"fmt"
	"sync/atomic"

	"plugpull/internal/clock"
	"plugpull/powerctl"
)

// call runs do, which the kernel may hold for seconds after ctx is done. It does not wait
// for that: the next call and Close do. do calls commit before it sends; false
// means that nobody waits any more, and that nothing may be sent.
//
// When do was left behind, committed is when it went past commit, and zero with an
// error that matches ErrNotSent where it did not and will not.
func (o *Outlet) call(ctx context.Context, do func(commit func() bool) error) (committed clock.Instant, _ error) {
	ctx, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", powerctl.ErrNotSent, err)
	}
	select {
	case <-o.turn:
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: wait for the call before: %w", powerctl.ErrNotSent, ctx.Err())
	}
	const given = -1
	var sent atomic.Int64 // given: up; else the instant of commit
	commit := func() bool { return sent.CompareAndSwap(0, int64(clock.Now())) }
	done := make(chan error, 1)
	go func() {
		defer func() { o.turn <- struct{}{} }()
		done <- do(commit)
	}()
	select {
	case err := <-done:
		return clock.Instant(max(sent.Load(), 0)), err
	case <-ctx.Done():
	}
	if sent.CompareAndSwap(0, given) {
		return 0, fmt.Errorf("%w: %w", powerctl.ErrNotSent, ctx.Err())
	}
	return clock.Instant(sent.Load()), ctx.Err()
}
