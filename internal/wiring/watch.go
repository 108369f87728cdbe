package wiring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"plugpull/internal/clock"
)

// sight is what a witness has seen of a cut so far.
type sight struct {
	answer  clock.Instant // the last one before the silence, or the last so far
	silence clock.Instant // the first question of the silence, zero while somebody answers
	gaveUp  clock.Instant // when the first question of the silence was given up
	second  clock.Instant // the second question of the silence, asked after that
	missed  int           // questions in a row that nobody answered
	back    clock.Instant // the first answer after the host was dark
	err     error         // of the witness itself
}

func (s sight) dark() bool { return s.missed >= silences || s.back != 0 }

// watcher asks a witness on and on, until end.
type watcher struct {
	mu   sync.Mutex
	seen sight
	stop context.CancelFunc
	done sync.WaitGroup
}

// watch begins to ask. It goes on when ctx ends, so that what comes after is seen as well.
func watch(ctx context.Context, witness *Witness) *watcher {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &watcher{stop: stop}
	w.done.Go(func() {
		for {
			asked := clock.Now()
			err := witness.Ask(ctx)
			if ctx.Err() != nil || !w.note(asked, err) || !rest(ctx, witness.Every) {
				return
			}
		}
	})
	return w
}

// note keeps an answer or a silence. It reports whether it is of use to go on.
func (w *watcher) note(asked clock.Instant, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.seen
	switch {
	case errors.Is(err, ErrCannotAsk):
		s.err = err
		return false
	case err == nil && s.dark():
		if s.back == 0 {
			s.back = clock.Now()
		}
	case err == nil:
		s.answer, s.silence, s.missed = clock.Now(), 0, 0
	case s.back == 0:
		switch s.missed++; s.missed {
		case 1:
			s.silence, s.gaveUp = asked, clock.Now()
		case 2:
			s.second = asked
		}
	}
	return true
}

func (w *watcher) sight() sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

func (w *watcher) end() {
	w.stop()
	w.done.Wait()
}

// awaitDark waits until nobody has answered for some questions. False: the time has passed.
func (w *watcher) awaitDark(ctx context.Context, most time.Duration) (bool, error) {
	s, err := w.await(ctx, most, sight.dark)
	if err != nil {
		return false, fmt.Errorf("after the outlet was switched off: %w", err)
	}
	return s.dark(), nil
}

// awaitBack waits until somebody answers again; back is zero where nobody did in time.
func (w *watcher) awaitBack(ctx context.Context, most time.Duration) (sight, error) {
	return w.await(ctx, most, func(s sight) bool { return s.back != 0 })
}

func (w *watcher) await(ctx context.Context, most time.Duration, is func(sight) bool) (sight, error) {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		s := w.sight()
		if s.err != nil || is(s) {
			return s, s.err
		}
		if !rest(limited, 2*time.Millisecond) {
			return s, ctx.Err()
		}
	}
}
