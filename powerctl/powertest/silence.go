package powertest

import (
	"context"
	"sync"
	"time"

	"plugpull/powerctl"
)

// ShortSilence gives a command of o that is never answered up once the device has had
// it, so that the suite need not wait out a timeout that is safe on a slow machine.
func ShortSilence(o powerctl.Outlet, d *Device) powerctl.Outlet { return shortSilence{o, d} }

type shortSilence struct {
	powerctl.Outlet
	d *Device
}

func (s shortSilence) Off(ctx context.Context) (powerctl.Result, error) {
	ctx, done := s.untilServed(ctx)
	defer done()
	return s.Outlet.Off(ctx)
}

func (s shortSilence) On(ctx context.Context) (powerctl.Result, error) {
	ctx, done := s.untilServed(ctx)
	defer done()
	return s.Outlet.On(ctx)
}

func (s shortSilence) untilServed(ctx context.Context) (context.Context, func()) {
	if s.d.Planted() != NoAnswer {
		return ctx, func() {}
	}
	return CancelWhen(ctx, func() bool { return len(s.d.Commands()) > 0 })
}

// CancelWhen returns a context that ends once the condition holds; call done
// to wait for its goroutine.
func CancelWhen(ctx context.Context, holds func() bool) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for !holds() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel()
	})
	return ctx, func() { cancel(); watcher.Wait() }
}
